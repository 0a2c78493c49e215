"""capture(): a person's own program marks its steps, in its own process; what was recorded becomes a profile on request.

Until `profile()` is asked for, torch and the standard library suffice.
"""

from __future__ import annotations

import os
import sys
import warnings
from contextlib import AbstractContextManager
from datetime import datetime, timezone
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from ..model.profile import Profile


class Capture:
    """`with capture(...) as c:` and inside, around the work of each step, `with c.step():`."""

    folder: Path
    """Where the recordings are (in raw/), and the documents once `profile()` has been called. Absolute."""

    def __init__(self, name: str, mode: str, folder: Path, options: dict[str, Any]) -> None:
        self.name, self.mode, self.folder = name, mode, folder
        self._options = options
        self._steps: Any = None
        self._closed = False

    def __enter__(self) -> Capture:
        if self._steps is not None:
            raise RuntimeError("a capture can be entered once; make another one")
        from ..model.files import begin_profile
        from ..probe.own_steps import OwnSteps

        try:
            begin_profile(self.folder)
        except (FileExistsError, NotADirectoryError) as error:
            raise NotADirectoryError(f"out_dir can't be a folder: {self.folder} is a file, or lies in one") from error
        (self.folder / "raw" / "result.json").unlink(missing_ok=True)
        self._steps = OwnSteps(str(self.folder / "raw"), self.name, self.mode, **self._options)
        return self

    def step(self) -> AbstractContextManager[None]:
        """Around the work of one step: warm-up first, then recorded ones, then steps that are only timed.

        A step inside another thread than the first recorded one's, and one of a forked child, runs unrecorded.
        """
        if self._steps is None or self._closed:
            raise RuntimeError("step() belongs inside `with kernelwright.capture(...) as capture:`")
        return self._steps.step()  # type: ignore[no-any-return]

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> Literal[False]:
        """Ends the recording. Never raises: what went wrong with it is a warning here, and an error of `profile()`."""
        self._closed = True
        try:
            self._steps.close()
            fault = self._steps.result["error"]
            if fault is not None and kind is None:
                warnings.warn(f"kernelwright: {fault['message']}. {fault['fix']}", stacklevel=2)
        except Exception as failure:  # noqa: BLE001 - the outermost edge: this runs inside somebody's program
            warnings.warn(f"kernelwright: the recording could not be written: {failure}", stacklevel=2)
        return False

    def profile(self) -> Profile:
        """Analyse what was recorded, write the documents into `folder`, and return the profile.

        Needs kernelwright's dependencies in this interpreter. Raises BadInput (too few steps, not ended yet), MachineLacks (a dependency is
        missing), WorkloadFailed.
        """
        if not self._closed:
            raise RuntimeError("the capture has not ended: call profile() after the `with` block")
        from .own_profile import profile_of_capture

        return profile_of_capture(self.folder, self.name, self.mode, self._steps.path)


def capture(
    name: str | None = None, mode: Literal["annotation", "event"] = "annotation", out_dir: str | os.PathLike[str] | None = None, *,
    warmup: int = 2, steps: int = 5, device: Literal["auto", "cuda", "cpu"] = "auto", stacks: bool = True, model: Any = None,
) -> Capture:
    """Record steps of your own program, in its own process.

    name: the kernel's name in reports (default: the program's). mode: "annotation" records a timeline, "event" only times.
    out_dir: default: a new folder under out/profiles/. warmup: steps before the recording (at least 0), timed without a profiler.
    steps: recorded steps. stacks: mode annotation: one more step with Python stacks, for source lines.
    device: "cuda" asks that the program has used CUDA by the end of the warm-up. model: an nn.Module whose submodules get ranges.

    Raises ValueError for values that these can't have; OSError where the folder can't be made.
    """
    if mode not in ("annotation", "event"):
        raise ValueError(f'mode is {mode!r}: "annotation" or "event"')
    if device not in ("auto", "cuda", "cpu"):
        raise ValueError(f'device is {device!r}: "auto", "cuda" or "cpu"')
    for what, value, least in (("warmup", warmup, 0), ("steps", steps, 1)):
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ValueError(f"{what} is {value!r}: a whole number from {least}")
    called = name if name is not None else Path(sys.argv[0] or "python").stem or "python"
    if not called.strip() or len(called) > 500 or "\0" in called:
        raise ValueError("name has 1 to 500 characters")
    return Capture(called, mode, _folder(called, mode, out_dir),
                   {"device": device, "warmup": warmup, "steps": steps, "stacks": stacks, "model": model})


def _folder(name: str, mode: str, out_dir: str | os.PathLike[str] | None) -> Path:
    if out_dir is not None:
        return Path(out_dir).absolute()
    safe = "".join(char if char.isalnum() or char in "._=-" else "_" for char in name).strip("._")[:100] or "unnamed"
    stamp = datetime.now(timezone.utc).strftime("%Y%m%d-%H%M%S-%f")
    return Path.cwd() / "out" / "profiles" / mode / safe / "default" / stamp

"""A recorded timeline with all that goes with it: the recording with stacks, the stacks themselves, who recorded it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..model.capture import ProbeResult
from ..model.errors import BadInput
from ..model.recording import NotNsys, Recording
from ..model.structure import FoundIterations
from ..model.trace import Trace
from ..readers.kineto import read_kineto
from ..readers.lines import UserStack, read_lines


@dataclass(frozen=True)
class Recorded:
    """One recording, read."""

    trace: Trace
    stacks: Trace | None
    """The recording of one step with stacks, if there is one."""
    lines: tuple[UserStack, ...]
    """The stacks that its line markers name."""
    recording: Recording | None = None
    """Who recorded it; None where nobody asks (every mode but nsys)."""
    warnings: tuple[str, ...] = ()
    found: FoundIterations | None = None
    """Where the steps are from, for recordings that do not mark them."""
    whole: Trace | None = None
    """Set where `trace` is only the beginning of a recording that is too large to list every launch of."""

    @property
    def trace_whole(self) -> Trace:
        """All that was recorded."""
        return self.whole or self.trace


def kineto_recorded(raw: Path, result: ProbeResult, trace: Trace | None = None) -> Recorded:
    """What torch.profiler recorded into raw/. trace: already read. Raises BadInput."""
    assert result.trace_file is not None
    stacks, unread = _stacks(raw, result)
    lines = read_lines(raw / result.lines_file) if stacks is not None and result.lines_file else ()
    return Recorded(trace or read_kineto(raw / result.trace_file), stacks, lines, warnings=unread)


def by_torch(recorded: Recorded, torch_version: str, file: str | None, not_nsys: NotNsys | None, seconds: float | None = None) -> Recording:
    """Who recorded a trace of torch.profiler."""
    trace = recorded.trace
    return Recording(recorder="kineto", tool=f"torch.profiler of torch {torch_version}" if torch_version else "torch.profiler",
                     not_nsys=not_nsys, file=file, steps_from=trace.steps_from, rank=trace.rank, world_size=trace.world_size,
                     seconds=seconds)


def _stacks(raw: Path, result: ProbeResult) -> tuple[Trace | None, tuple[str, ...]]:
    """The recording with stacks and warnings; None where it can't be read: it costs modules and lines, not the profile.

    Seen: torch writes Python function names unescaped, and torch.compile makes code whose name holds quotes.
    """
    if result.stacks_file is None:
        return None, ()
    try:
        return read_kineto(raw / result.stacks_file), ()
    except BadInput as error:
        return None, (f"modules and source lines are not known: {result.stacks_file}: {error.message}",)

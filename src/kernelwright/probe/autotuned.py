"""What Triton's autotuner times is written down as it comes, so that a run which crashed after it can go on from there.

Shape, from python/triton/runtime/autotuner.py of triton-lang/triton: `Autotuner._bench(*args, config, **meta)` gives the time of one
configuration.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from . import compiled_triton
from .watching import after_import

AUTOTUNER = "triton.runtime.autotuner"
JOURNAL = "autotuned.jsonl"
"""In the run's raw folder: one line a timed configuration (or a choice of Inductor's, which keeps its own cache on disk)."""


class Journal:
    """The timings of one run, and with `again` those of the run before, which are taken instead of being measured anew."""

    def __init__(self, folder: str, *, again: bool, warn: Callable[[str], None]) -> None:
        self.path = os.path.join(folder, JOURNAL)
        self._warn = warn
        self._known: dict[tuple[str, str], list[Any]] = {}
        self.replayed = 0
        if again:
            self._read()
        elif os.path.exists(self.path):
            os.unlink(self.path)

    def note(self, kernel: str, config: str, time: Any) -> None:
        """One line, on disk at once. Never raises: it runs inside the user's kernel launch."""
        try:
            with open(self.path, "a", encoding="utf-8") as file:
                file.write(json.dumps({"kernel": kernel, "config": config, "time_ms": time}) + "\n")
        except (OSError, TypeError, ValueError):
            return

    def install(self, module: Any) -> None:
        """Stand around Autotuner._bench. Never raises: private API of Triton's, absent or changed, and the workload goes on."""
        tuner = getattr(module, "Autotuner", None)
        bench = getattr(tuner, "_bench", None)
        if tuner is None or not callable(bench):
            return

        def journalled(own: Any, *args: Any, config: Any, **meta: Any) -> Any:
            kernel, words = compiled_triton.name_of(own), str(config)
            known = self._known.get((kernel, words))
            if known:
                self.replayed += 1
                return known.pop(0)
            time = bench(own, *args, config=config, **meta)
            self.note(kernel, words, time)
            return time

        tuner._bench = journalled

    def _read(self) -> None:
        try:
            with open(self.path, encoding="utf-8") as file:
                for line in file:
                    row = json.loads(line)
                    if row["kernel"] is not None and row["time_ms"] is not None:
                        self._known.setdefault((row["kernel"], row["config"]), []).append(row["time_ms"])
        except (OSError, ValueError, KeyError, TypeError):  # the last line of a process that died may be half a line
            return


@contextmanager
def journal(folder: str, *, again: bool, warn: Callable[[str], None]) -> Iterator[Journal]:
    """Within it, the autotuner's timings are written down. Imports nothing: waits until something imports Triton."""
    kept = Journal(folder, again=again, warn=warn)
    with after_import(AUTOTUNER, kept.install):
        yield kept
    if kept.replayed:
        warn(f"{kept.replayed} timings of the autotuner are those of the run before, which crashed after it")

"""Candidates that are compiled before their screens come: their files, and which are done."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from ..model.saying import Say
from .plan import Candidate

AHEAD = 3
"""Candidates that may be compiled ahead, beside the one of the ladder whose kernels are measured."""
TUNING_FACTOR = 2.0
"""Kernels may be measured ahead for so many times the seconds that a screen is expected to take with it: then the process ends, and what
waits for it goes on."""
LEAST_TUNING_S = 60.0
GLANCE_S = 0.2
"""How often is looked whether what is compiled ahead is done, while nothing else is to do."""


class Compiling(Protocol):
    """Compiles files in processes of its own (screen.Screener)."""

    def processes(self) -> int:
        """How many there may be."""

    def compile_ahead(self, files: Sequence[Path], limit_s: float) -> None:
        """Have these compiled meanwhile, each once."""

    def begun(self, file: Path) -> bool:
        """Whether a process was given it."""

    def compiled(self, file: Path) -> bool:
        """Whether it was compiled ahead."""

    def compiling(self, files: Sequence[Path]) -> bool:
        """Whether one of these is compiled at present."""

    def end_ahead(self) -> None:
        """End these processes; what is asked for later starts new ones."""


class Ahead:
    """What is compiled ahead in one search. put: writes a candidate's file, where so many others wait already, and returns its path."""

    def __init__(self, screening: Compiling, put: Callable[[Candidate, int], Path]) -> None:
        self.screening, self.put = screening, put
        self.files: dict[str, Path] = {}
        """Of candidates that were written for it and not tried yet, by name."""
        self.tuned: set[Path] = set()
        """Files of those whose kernels the compiler measures, tried or not."""

    def begin(self, likely: Sequence[Candidate], tuned: Sequence[Candidate], limit_s: float, tuning_s: float, left_s: float) -> None:
        """Have what is likely to come next compiled, and one after the other of `tuned`, which the compiler measures kernels of: that has a
        process of its own, where there are several. tuning_s: what a screen with it is expected to take."""
        files = [self._file(item) for item in likely[:AHEAD]]
        self.screening.compile_ahead(files[: AHEAD - 1], limit_s)
        waiting = [item for item in tuned if item.name not in self.files or not self.screening.begun(self.files[item.name])]
        if waiting and self.screening.processes() > 1 and not self.is_tuning():
            file = self._file(waiting[0])
            self.tuned.add(file)
            self.screening.compile_ahead([file], min(left_s, max(LEAST_TUNING_S, TUNING_FACTOR * tuning_s)))
        self.screening.compile_ahead(files[AHEAD - 1 :], limit_s)

    def is_compiled(self, item: Candidate) -> bool:
        """Whether the compilers' caches have it."""
        return item.name in self.files and self.screening.compiled(self.files[item.name])

    def is_compiling(self, item: Candidate) -> bool:
        """Whether a process compiles it at present."""
        return item.name in self.files and self.screening.compiling([self.files[item.name]])

    def is_tuning(self) -> bool:
        """Whether a process measures kernels at present."""
        return self.screening.compiling(list(self.tuned))

    def wait(self, items: Sequence[Candidate], left_s: Callable[[], float], say: Say) -> bool:
        """Wait until one of these is done or given up, while this leaves time for its screen. False: nothing has changed."""
        open_ = [item for item in items if item.name in self.files and not self.is_compiled(item)]
        waited = False
        busy = [self.files[item.name] for item in open_ if self.screening.compiling([self.files[item.name]])]
        while left_s() > 0 and busy and all(self.screening.compiling([file]) for file in busy):
            if not waited:
                say("waiting for what is compiled ahead")
            waited = True
            time.sleep(GLANCE_S)
        return waited or any(self.is_compiled(item) for item in open_)

    def take(self, name: str) -> Path | None:
        """The file of a candidate that is tried now; None where none was written."""
        return self.files.pop(name, None)

    def end(self) -> None:
        """Nothing more is compiled, and the files of candidates that were never tried go."""
        self.screening.end_ahead()
        for file in self.files.values():
            file.unlink(missing_ok=True)
        self.files.clear()

    def _file(self, item: Candidate) -> Path:
        if item.name not in self.files:
            self.files[item.name] = self.put(item, len(self.files))
        return self.files[item.name]

"""Candidates that are compiled before their screens come: their files, and which are done."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Protocol

from ..model.saying import Say
from .plan import Candidate

AHEAD = 3
"""Candidates that may be compiled ahead, beside the one of the ladder whose kernels are measured."""
COMPILED_S = 4.0
"""The screen of what was compiled ahead is not expected to take longer (H200: 0.9 to 1.6)."""
GLANCE_S = 0.2
"""How often is looked whether what is compiled ahead is done, while nothing else is to do."""


class Compiling(Protocol):
    """Compiles files in processes of its own (screen.Screener)."""

    def compile_ahead(self, files: Sequence[Path], limit_s: float) -> None:
        """Have these compiled meanwhile, each once."""

    def compiled(self, file: Path) -> bool:
        """Whether it was compiled ahead."""

    def compiling(self, files: Sequence[Path]) -> bool:
        """Whether one of these is compiled at present."""


class Ahead:
    """What is compiled ahead in one search. put: writes a candidate's file, where so many others wait already, and returns its path."""

    def __init__(self, screening: Compiling, put: Callable[[Candidate, int], Path]) -> None:
        self.screening, self.put = screening, put
        self.files: dict[str, Path] = {}
        """Of candidates that were written for it and not tried yet, by name."""

    def begin(self, likely: Sequence[Candidate], tuned: Sequence[Candidate], limit_s: float, left_s: float) -> None:
        """Have what is likely to come next compiled, and one of `tuned`, which the compiler measures kernels of: that has a process of its
        own, where there are several, and as long as the budget lasts."""
        files = [self._file(item) for item in likely[:AHEAD]]
        self.screening.compile_ahead(files[: AHEAD - 1], limit_s)
        self.screening.compile_ahead([self._file(item) for item in tuned if not self.is_compiled(item)][:1], left_s)
        self.screening.compile_ahead(files[AHEAD - 1 :], limit_s)

    def is_compiled(self, item: Candidate) -> bool:
        """Whether the compilers' caches have it."""
        return item.name in self.files and self.screening.compiled(self.files[item.name])

    def is_compiling(self, items: Iterable[Candidate]) -> bool:
        """Whether a process is busy with one of these."""
        return self.screening.compiling([self.files[item.name] for item in items if item.name in self.files])

    def wait(self, items: Sequence[Candidate], left_s: Callable[[], float], say: Say) -> bool:
        """Wait until one of these is done. False: none is compiled, or no time would be left for its screen."""
        open_ = [item for item in items if not self.is_compiled(item)]
        waited = False
        while left_s() > COMPILED_S and self.is_compiling(open_):
            if not waited:
                say("waiting for what is compiled ahead")
            waited = True
            time.sleep(GLANCE_S)
        return any(self.is_compiled(item) for item in open_)

    def take(self, name: str) -> Path | None:
        """The file of a candidate that is tried now; None where none was written."""
        return self.files.pop(name, None)

    def remove_unused(self) -> None:
        """The files of candidates that were never tried."""
        for file in self.files.values():
            file.unlink(missing_ok=True)
        self.files.clear()

    def _file(self, item: Candidate) -> Path:
        if item.name not in self.files:
            self.files[item.name] = self.put(item, len(self.files))
        return self.files[item.name]

"""Reader for lines.json.gz: the user's call stacks that the line markers of a recording name by number."""

from __future__ import annotations

import gzip
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from ..model.errors import BadInput

MAX_BYTES = 64 << 20
_MAX_FRAMES = 64
_MAX_NAME = 400
_RECORD_AGAIN = "record the profile again"


@dataclass(frozen=True)
class Frame:
    """One frame of the user's own code."""

    file: str
    line: int
    function: str
    compiled: int = 0
    """0: plain Python. 1: torch.compile's code at its beginning: the line stands for all of the compiled part. 2: its code at
    an exact line, after a graph break."""

    @property
    def place(self) -> str:
        """"model.py:12"."""
        return f"{self.file}:{self.line}"


@dataclass(frozen=True)
class UserStack:
    """A stack at one moment, outermost first; a number stands for that many folded frames of libraries."""

    entries: tuple[Frame | int, ...]

    @property
    def source(self) -> str | None:
        """The innermost line of the user's that was being executed; for a compiled part the line that called it. None: no such."""
        frames = [entry for entry in reversed(self.entries) if isinstance(entry, Frame)]
        if frames and frames[0].compiled == 2:
            return frames[0].place
        return next((frame.place for frame in frames if not frame.compiled), None)

    @property
    def definition(self) -> str | None:
        """The innermost user frame, exact or not."""
        return next((entry.place for entry in reversed(self.entries) if isinstance(entry, Frame)), None)

    def words(self) -> tuple[str, ...]:
        """For people, outermost first: "train.py:40 main", "(3 library frames)", "model.py:12 forward"."""
        return tuple(_folded(entry) if isinstance(entry, int) else
                     f"{entry.place} {entry.function}{' (compiled)' if entry.compiled else ''}" for entry in self.entries)


class _File(msgspec.Struct):
    version: int
    stacks: list[list[Any]]


def read_lines(path: Path) -> tuple[UserStack, ...]:
    """The stacks by their number. Raises BadInput for a file that is missing, too large or not of this form."""
    try:
        with gzip.open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise BadInput("lines_too_large", f"the stacks are larger than {MAX_BYTES >> 20} MiB", where=path.name, fix=_RECORD_AGAIN)
        document = msgspec.json.decode(data, type=_File)
        return tuple(UserStack(tuple(_entry(part) for part in stack[-_MAX_FRAMES:])) for stack in document.stacks)
    except (OSError, EOFError, zlib.error, ValueError, msgspec.DecodeError, RecursionError) as error:
        raise BadInput("bad_lines", f"not a readable table of stacks ({error})", where=path.name, fix=_RECORD_AGAIN) from error


def _entry(part: Any) -> Frame | int:
    match part:
        case bool():
            raise ValueError("an entry is a truth value")
        case int() if part > 0:
            return part
        case [str(file), int(line), str(function), 0 | 1 | 2 as compiled] if line >= 0:
            return Frame(file[:_MAX_NAME], line, function[:_MAX_NAME], compiled)
    raise ValueError("an entry is neither a frame nor a number of folded frames")


def _folded(count: int) -> str:
    return f"({count} library frame{'' if count == 1 else 's'})"

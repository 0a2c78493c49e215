"""The one error type that reaches a user, and its documented exit codes.

Exit codes (the same for every verb): 0 ok; 2 bad usage or input; 3 something that the machine lacks;
4 the workload itself failed; 5 judged not acceptable; 130 interrupted.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

EXIT_OK = 0
EXIT_BAD_INPUT = 2
EXIT_MACHINE_LACKS = 3
EXIT_WORKLOAD_FAILED = 4
EXIT_NOT_ACCEPTABLE = 5
EXIT_INTERRUPTED = 130
MAX_PART_CHARACTERS = 1000
"""Longest where, message and fix: an exception's text may be megabytes."""
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class KernelwrightError(Exception):
    """One clear line for the user: what is wrong, where, and the mend.

    code: stable snake_case identifier for programs, e.g. "no_entry_point".
    message: what is wrong. where: file, option or step it is about. fix: what to do next.
    """

    exit_code: int = EXIT_BAD_INPUT

    def __init__(self, code: str, message: str, *, where: str = "", fix: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.where = where
        self.fix = fix

    def as_dict(self) -> dict[str, str]:
        """The `error` object of every JSON answer."""
        return {"code": self.code, "message": _cut(self.message), "where": _cut(self.where), "fix": _cut(self.fix)}

    def line(self) -> str:
        """The one line that a person sees: no line ends, no control characters (they are shown escaped), of bounded length."""
        message = one_line(self.message)
        where = f"{one_line(self.where)}: " if self.where else ""
        fix = f" Fix: {one_line(self.fix)}" if self.fix else ""
        stop = "." if fix and not message.endswith((".", "!", "?")) else ""
        return f"{where}{message}{stop}{fix}"


def one_line(text: str) -> str:
    """`text` on one line: white space becomes blanks, what a terminal would obey (or can't show) becomes an escape such as \\x1b."""
    return printable(" ".join(_cut(text).split()))


def printable(text: str) -> str:
    """`text` with what a terminal would obey (or can't show) as an escape such as \\x1b."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape", "surrogatepass").decode("ascii") for char in text)


def _cut(text: str) -> str:
    """At most MAX_PART_CHARACTERS; what is left out is left out in the middle."""
    if len(text) <= MAX_PART_CHARACTERS:
        return text
    tail = MAX_PART_CHARACTERS // 3
    return f"{text[: MAX_PART_CHARACTERS - tail - 5]} ... {text[-tail:]}"


class BadInput(KernelwrightError):
    """Wrong usage or input (exit 2)."""


class NotWritable(KernelwrightError, OSError):
    """A file or folder could not be written: exit 3 where the disk is full, else 2.

    An OSError too (errno, strerror and filename are the first error's), so that code which can do without the file may pass it over.
    """

    def __init__(self, error: OSError, where: Path | str, *, fix: str = "name a writable folder with --out DIR") -> None:
        full = error.errno in _FULL
        words = error.strerror or str(error)
        super().__init__("no_disk_space" if full else "output_not_writable",
                         f"the disk is full ({words})" if full else f"can't write there: {words}",
                         where=os.path.abspath(where) if isinstance(where, Path) else where,
                         fix="free some space there, or use a folder on another disk" if full else fix)
        self.exit_code = EXIT_MACHINE_LACKS if full else EXIT_BAD_INPUT
        self.errno, self.strerror, self.filename = error.errno, error.strerror, self.where

    def __str__(self) -> str:
        return self.message


class MachineLacks(KernelwrightError):
    """This machine lacks something; `fix` says how to get it (exit 3)."""

    exit_code = EXIT_MACHINE_LACKS


class WorkloadFailed(KernelwrightError):
    """The user's own code failed or never ended (exit 4)."""

    exit_code = EXIT_WORKLOAD_FAILED


class Interrupted(KernelwrightError):
    """Ctrl-C, SIGTERM or SIGHUP (exit 130)."""

    exit_code = EXIT_INTERRUPTED

    def __init__(self, where: str) -> None:
        super().__init__("interrupted", "interrupted", where=where, fix="run the same command again")


class NotAcceptable(KernelwrightError):
    """A gate or a judgement said no (exit 5)."""

    exit_code = EXIT_NOT_ACCEPTABLE


ERROR_BY_EXIT_CODE: dict[int, type[KernelwrightError]] = {
    EXIT_BAD_INPUT: BadInput,
    EXIT_MACHINE_LACKS: MachineLacks,
    EXIT_WORKLOAD_FAILED: WorkloadFailed,
    EXIT_NOT_ACCEPTABLE: NotAcceptable,
}

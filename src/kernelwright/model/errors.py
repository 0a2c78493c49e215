"""The one error type that reaches a user, and its documented exit codes.

Exit codes (the same for every verb): 0 ok; 2 bad usage or input; 3 something that the machine lacks;
4 the workload itself failed; 5 judged not acceptable; 130 interrupted.
"""

from __future__ import annotations

EXIT_OK = 0
EXIT_BAD_INPUT = 2
EXIT_MACHINE_LACKS = 3
EXIT_WORKLOAD_FAILED = 4
EXIT_NOT_ACCEPTABLE = 5
EXIT_INTERRUPTED = 130


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
        return {"code": self.code, "message": self.message, "where": self.where, "fix": self.fix}

    def line(self) -> str:
        """The one line that a person sees."""
        where = f"{self.where}: " if self.where else ""
        fix = f" Fix: {self.fix}" if self.fix else ""
        stop = "." if fix and not self.message.endswith((".", "!", "?")) else ""
        line = " ".join(f"{where}{self.message}{stop}{fix}".split())
        return "".join(character if character.isprintable() else "?" for character in line)


class BadInput(KernelwrightError):
    """Wrong usage or input (exit 2)."""


class MachineLacks(KernelwrightError):
    """This machine lacks something; `fix` says how to get it (exit 3)."""

    exit_code = EXIT_MACHINE_LACKS


class WorkloadFailed(KernelwrightError):
    """The user's own code failed or never ended (exit 4)."""

    exit_code = EXIT_WORKLOAD_FAILED


class NotAcceptable(KernelwrightError):
    """A gate or a judgement said no (exit 5)."""

    exit_code = EXIT_NOT_ACCEPTABLE


ERROR_BY_EXIT_CODE: dict[int, type[KernelwrightError]] = {
    EXIT_BAD_INPUT: BadInput,
    EXIT_MACHINE_LACKS: MachineLacks,
    EXIT_WORKLOAD_FAILED: WorkloadFailed,
    EXIT_NOT_ACCEPTABLE: NotAcceptable,
}

"""The one error of the set-up, in the same shape as every other error of kernelwright."""

from __future__ import annotations

EXIT_MACHINE_LACKS = 3
EXIT_INTERRUPTED = 130


class SetupError(Exception):
    """Something that this machine lacks (exit 3), or an interrupt (exit 130): one line that ends with the fix."""

    def __init__(self, code: str, message: str, *, where: str = "", fix: str = "", exit_code: int = EXIT_MACHINE_LACKS) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.where = where
        self.fix = fix
        self.exit_code = exit_code

    def as_dict(self) -> dict[str, str]:
        """The `error` object of a JSON answer."""
        return {"code": self.code, "message": self.message, "where": self.where, "fix": self.fix}

    def line(self) -> str:
        """The one line that a person sees."""
        where = f"{self.where}: " if self.where else ""
        fix = f" Fix: {self.fix}" if self.fix else ""
        return " ".join(f"{where}{self.message}{fix}".split())


def interrupted(message: str = "interrupted; nothing half-made was left behind") -> SetupError:
    """What Ctrl-C or SIGTERM during a set-up becomes, after cleaning up."""
    return SetupError("interrupted", message, where="set-up", fix="run the same command again", exit_code=EXIT_INTERRUPTED)

"""A candidate's worker that is started before its candidate is known, so that a judgement need not wait for imports.

It is confined as any other, and is told of nothing before that. It imports what torch.compile needs, uses no device, and is stopped while
anything is timed.
"""

from __future__ import annotations

import contextlib
import re
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..capture.cpus import granted_cpus
from ..model.workload import WorkloadRef
from .channel import REPORT_S, Worker, WorkerFailed
from .confine import Confinement, available_bytes
from .exchange import Exchange
from .options import Deadline, JudgeOptions
from .replies import Admitted
from .untrusted import remove

LEAST_CORES = 4
LEAST_MEMORY_BYTES = 8 * 2**30
"""With fewer CPUs or less memory the imports would slow down what goes on meanwhile."""
SETS_VARIABLES = re.compile(rb"\b(environ|putenv)\b")
LEAST_ABI = 6
"""Of Landlock (Linux 6.12): with an older one the candidate before could stop a spare's supervisor."""
SAME = ("device", "python", "confine", "memory_limit_bytes", "process_limit", "compile_cache")
"""Options that a worker starts with."""


@dataclass
class Spare:
    """One such worker, in a folder of its own."""

    worker: Worker
    confinement: Confinement
    folder: Path

    def fits(self, options: JudgeOptions, protect: tuple[int, ...]) -> bool:
        """Whether it is confined as a worker started now would be."""
        mine = self.confinement
        return (self.worker.process.poll() is None and mine.protect == protect and self._sealed()
                and all(getattr(mine.options, name) == getattr(options, name) for name in SAME))

    def admitted(self, candidate: Path, sha256: str, timeout_s: float, deadline: Deadline) -> bool:
        """Tell it its candidate. False: it is of no use (made before the candidate's folder was, it cannot read it; or it died), and
        is ended. Raises OutOfTime."""
        self.go_on()
        reply: Admitted | None = None
        try:
            reply = Exchange(self.worker, self.folder, timeout_s, deadline).ask("admit", Admitted, candidate=str(candidate))
        except WorkerFailed:
            return False
        finally:
            if reply is None or not reply.readable:
                self.end()
        if not reply.readable or self.confinement.report is None:
            self.end()
            return False
        self.confinement.admit(candidate, sha256, held=reply.held, detail=reply.detail)
        return True

    @contextlib.contextmanager
    def quiet(self) -> Iterator[None]:
        """It does nothing inside this."""
        self._signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.go_on()

    def go_on(self) -> None:
        """After a stop."""
        self._signal(signal.SIGCONT)

    def end(self) -> None:
        """End it and all that it started. Safe to repeat."""
        self.worker.close()
        remove(self.folder)

    def _sealed(self) -> bool:
        """Whether another candidate, which ran while this one waited, could neither signal its processes nor write the judge's files."""
        self.worker.reported(REPORT_S)
        checks = self.confinement.report.checks if self.confinement.report is not None else []
        found = next((check.detail for check in checks if check.name == "Landlock" and check.held), "")
        abi = found.removeprefix("ABI ")
        return abi.isdecimal() and int(abi) >= LEAST_ABI

    def _signal(self, number: int) -> None:
        """To the worker's process group; never to its supervisor, which ends it when this process is killed. One that has not reported,
        so that nobody knows whom to stop, is ended."""
        if not self.worker.reported(REPORT_S):
            self.end()
        elif self.worker.process.poll() is None:
            self.worker.signal(number)


def worthwhile(workload: WorkloadRef) -> bool:
    """Whether this machine has room for processes that only wait, and nothing in the workload's files must come before they import what
    compilers need: a variable that it sets for them."""
    if granted_cpus() < LEAST_CORES or available_bytes() < LEAST_MEMORY_BYTES:
        return False
    files = (workload.path, *([workload.source.path] if workload.source is not None else []))
    return not any(SETS_VARIABLES.search(file.read_bytes()) for file in files if file.is_file())

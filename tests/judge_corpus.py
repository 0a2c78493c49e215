"""Judges the two corpora: one live reference for each workload."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import TracebackType

from kernelwright.judge import JudgeOptions, ReferenceSession, judge
from kernelwright.model.verdict import Verdict
from kernelwright.model.workload import WorkloadRef

DATA = Path(__file__).resolve().parent / "data" / "judge"
EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
FULL = "KERNELWRIGHT_FULL_CORPUS"
"""Environment variable: with 1, the tests judge every candidate of both corpora."""


def is_full() -> bool:
    """Whether every candidate is to be judged."""
    return os.environ.get(FULL) == "1"


class Sessions:
    """Sessions by workload, each started when it is first asked for."""

    def __init__(self, max_timing_s: float, device: str = "cpu", *, confirm: bool = True) -> None:
        self.options = JudgeOptions.model_validate({
            "device": device, "python": sys.executable, "max_timing_s": max_timing_s, "timeout_s": 200, "confirm": confirm,
            "conditions": ()})  # they decide nothing
        self.open: dict[str, ReferenceSession] = {}

    def __enter__(self) -> Sessions:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for session in self.open.values():
            session.close()

    def judge(self, workload: Path, candidate: Path, *, version: str | None = None, **changes: object) -> Verdict:
        """One verdict; changes: fields of the options that differ for this candidate."""
        key = f"{workload}:{version}"
        if key not in self.open:
            session = ReferenceSession(WorkloadRef(path=workload, name=workload.stem, version=version), self.options)
            self.open[key] = session.__enter__()
        session = self.open[key]
        return judge(session.workload, candidate, self.options.model_copy(update=changes), session=session)


def said(verdict: Verdict) -> str:
    """All that a verdict says in words."""
    return "\n".join([*verdict.reasons, *(f"{row.name} {row.result}: {row.detail}" for row in verdict.audits)])


def running(word: str) -> list[int]:
    """Ids of the processes whose command line holds this word."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if word.encode() in (folder / "cmdline").read_bytes().split(b"\0"):
                found.append(int(folder.name))
        except OSError:
            continue
    return found

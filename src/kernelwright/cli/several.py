"""Several workloads in one command: one after another, then one table."""

from __future__ import annotations

import argparse
import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..model.errors import EXIT_INTERRUPTED, Interrupted, KernelwrightError
from ..model.profile import Profile
from ..model.saying import Say
from ..model.workload import WorkloadRef
from ..pipeline.stored import safe_name
from ..report.several import SeveralRow, render_several
from .common import Answer

Run = Callable[[WorkloadRef, argparse.Namespace], Answer]


@dataclass(frozen=True)
class Outcome:
    """What came of one workload."""

    workload: WorkloadRef
    answer: Answer | None
    error: KernelwrightError | None


def run_each(found: Sequence[WorkloadRef], args: argparse.Namespace, run: Run, say: Say) -> list[Outcome]:
    """Run all; one that fails is told at once and does not stop the others. With --out each gets a folder of its own there."""
    outcomes = []
    for place, workload in enumerate(found, 1):
        say(f"{place} of {len(found)}: {words_of(workload)}")
        own = copy.copy(args)
        own.out = args.out / safe_name("-".join(filter(None, (f"{place:02}", workload.name, workload.version)))) if args.out else None
        try:
            outcomes.append(Outcome(workload, run(workload, own), None))
            if outcomes[-1].answer is not None and outcomes[-1].answer.exit_code == EXIT_INTERRUPTED:
                break
        except Interrupted:
            raise
        except KernelwrightError as error:
            say(f"{words_of(workload)} failed: {error.line()}")
            outcomes.append(Outcome(workload, None, error))
    return outcomes


def words_of(workload: WorkloadRef) -> str:
    """The kernel and its version."""
    return f"{workload.name} {workload.version}" if workload.version else workload.name


def profiles_answer(outcomes: Sequence[Outcome]) -> Answer:
    """The table of several profiles. The exit code is that of the first that failed."""
    rows = [_row(outcome) for outcome in outcomes]
    data: dict[str, object] = {"profiles": [
        {"kernel": outcome.workload.name, "version": outcome.workload.version,
         **({"status": "ok", **outcome.answer.data} if outcome.answer is not None else {}),
         **({"status": "error", "error": outcome.error.as_dict()} if outcome.error is not None else {})} for outcome in outcomes]}
    failed = first_error(outcomes)
    if failed is not None:
        data |= {"status": "error", "error": failed.as_dict()}
    return Answer(data, render_several(rows).rstrip("\n"), failed.exit_code if failed is not None else 0)


def first_error(outcomes: Sequence[Outcome]) -> KernelwrightError | None:
    """The fault of the first that failed."""
    return next((outcome.error for outcome in outcomes if outcome.error is not None), None)


def _row(outcome: Outcome) -> SeveralRow:
    profile: Profile | None = None
    report = ""
    if outcome.answer is not None:
        profile = Profile.load(Path(outcome.answer.data["profile"]))
        report = str(outcome.answer.data["report"])
    return SeveralRow(outcome.workload.name, outcome.workload.version, profile, report,
                      outcome.error.line() if outcome.error is not None else "")

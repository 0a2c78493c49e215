"""bench [KERNEL ...] [--check]: the budgets of the project file, measured; with --check one that is over exits 5."""

from __future__ import annotations

import argparse
import errno
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path

from ..model.errors import EXIT_NOT_ACCEPTABLE, EXIT_OK, BadInput, Interrupted, KernelwrightError, NotWritable
from ..model.files import write_text_atomic
from ..model.measurement import Measurement
from ..model.profile import Profile
from ..model.saying import Say
from ..model.workload import WorkloadRef
from ..pipeline.profile import ProfileOptions, profile
from ..pipeline.stored import safe_name
from ..pipeline.target import refuse_script, workload_of
from ..project import PROJECT_FILE, Budget, Kernel, Meant, Project, find
from ..project.fingerprint import versions_of_file
from ..report.budgets import FEWEST_PAIRS, BudgetRow, Outcome, decide, duration_outcome, limit_text, render_budgets, slower_pct
from ..report.ci import github_annotations, junit_xml
from ..report.figures import duration_warning
from .common import Answer, add_run_options, clocks_of, device_of, no_params, positive_count
from .profile_kernel import write_run

HELP = "hold a project's kernels to their budgets; one that is over exits 5"
DESCRIPTION = (
    "Measure what the budgets of kernelwright.yaml limit. A duration is over where its 95% interval lies above the limit, in two "
    "processes; against another version, where the 95% interval of the ratio over pairs of processes does. With --check that is exit 5; "
    "a budget that the noise leaves open is a warning."
)
USUAL_PAIRS = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which kernels, and the forms of the answer."""
    parser.add_argument("kernels", metavar="KERNEL", nargs="*", help="kernels of the project file (default: all that have budgets)")
    parser.add_argument("--check", action="store_true", help="exit 5 when a budget is over (default: only tell)")
    parser.add_argument("--pairs", type=positive_count, default=USUAL_PAIRS, metavar="N",
                        help=f"pairs of processes for a budget against another version (default: {USUAL_PAIRS}, at least {FEWEST_PAIRS})")
    parser.add_argument("--junit", type=Path, metavar="FILE", help="write the outcome as JUnit XML")
    parser.add_argument("--github", action="store_true", help="annotate the project file's lines in GitHub's checks (on stderr)")
    add_run_options(parser)


def run(args: argparse.Namespace, params: dict[str, str], say: Say) -> Answer:
    """Measure every budget, write the reports, and hold the gate."""
    no_params(params, verb="bench")
    if args.pairs < FEWEST_PAIRS:
        raise BadInput("usage", f"{args.pairs} pairs have no interval to speak of", where="--pairs", fix=f"at least {FEWEST_PAIRS}")
    project = find(Path.cwd().resolve())
    if project is None:
        raise BadInput("no_project", f"there is no {PROJECT_FILE} here or above", where="bench", fix="write one: init")
    budgets = _budgets(project, args.kernels)
    if args.junit is not None:
        _can_write(args.junit)
    stamp = datetime.now(timezone.utc).strftime("%Y%m%d-%H%M%S-%f")
    bench = _Bench(project, args, (args.out or Path.cwd() / "out" / "bench" / stamp).absolute(), say)
    rows = [row for kernel, budget in budgets for row in bench.rows(kernel, budget)]
    if args.junit is not None:
        write_text_atomic(_meant(args.junit), junit_xml(rows, project.file))
    told = github_annotations(rows, project.file, Path(os.environ.get("GITHUB_WORKSPACE") or project.folder)) if args.github else []
    over = [row for row in rows if row.outcome == "over"]
    failed = next((row for row in rows if row.error is not None), None)
    data = {"out_dir": str(bench.folder), "budgets": [row.as_dict() for row in rows], "over": len(over), "checked": args.check,
            **({"junit": str(args.junit.absolute())} if args.junit is not None else {}),
            **({"status": "error", "error": failed.error} if failed is not None else {})}
    code = EXIT_NOT_ACCEPTABLE if over and args.check else bench.first_exit if failed is not None else EXIT_OK
    return Answer(data, render_budgets(rows).rstrip("\n"), code, tail="\n".join(["", *told]) if told else "")


def _can_write(file: Path) -> None:
    """Raises NotWritable before anything is measured for nothing."""
    try:
        if file.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if os.path.lexists(file) and not (file.is_file() or (file.is_symlink() and not file.exists())):
            raise BadInput("usage", "is no regular file", where=f"--junit {file}", fix="name a file")
        _meant(file).parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=_meant(file).parent):
            pass
        if file.is_file() and not file.is_symlink():
            file.unlink()  # an earlier run's: where this one ends early, nobody takes it for its own
    except OSError as error:
        raise NotWritable(error, file) from error


def _meant(file: Path) -> Path:
    """The file that a link leads to: it is written, and the link stays."""
    return Path(os.path.realpath(file))


def _budgets(project: Project, named: Sequence[str]) -> list[tuple[Kernel, Budget]]:
    kernels = [project.kernel(name) for name in dict.fromkeys(named)] or list(project.kernels.values())
    found = [(kernel, budget) for kernel in kernels for budget in kernel.budgets]
    if not found:  # a gate that holds nothing must not pass
        raise BadInput("no_budgets", "there is no budget" + (f" of {', '.join(named)}" if named else ""), where=str(project.file),
                       fix="add `budgets: [{duration_us: 120}]` to a kernel")
    for kernel, budget in found:
        if budget.versus is not None and budget.version is None and kernel.usual_version is None and kernel.file is not None \
                and versions_of_file(kernel.file)[-1:] == [budget.versus]:
            raise _against_itself(project, kernel, budget)
    return found


def _against_itself(project: Project, kernel: Kernel, budget: Budget) -> BadInput:
    return BadInput("bad_budgets", f"{budget.versus} is held against itself: it is what is measured where no version is named",
                    where=f"{project.file}:{budget.line}: kernels.{kernel.name}.budgets", fix="name another version")


@dataclass
class _Bench:
    project: Project
    args: argparse.Namespace
    folder: Path
    say: Say
    first_exit: int = EXIT_OK
    """Of the first budget that could not be measured."""
    _count: int = 0
    _folders: list[str] = field(default_factory=list)

    def rows(self, kernel: Kernel, budget: Budget) -> list[BudgetRow]:
        """One row a limit."""
        version = budget.version if budget.version is not None else kernel.usual_version
        wanted: list[tuple[str, Callable[[BudgetRow], BudgetRow]]] = []
        if budget.duration_us is not None:
            wanted.append((f"at most {limit_text(budget.duration_us)} us", lambda row: self._duration(kernel, budget, row)))
        if budget.versus is not None:
            wanted.append((f"at most {limit_text(budget.slower_pct)}% slower than {budget.versus}",
                           lambda row: self._versus(kernel, budget, row)))
        return [self._row(BudgetRow(kernel.name, version, dict(budget.params), budget.line, limit, "failed"), hold)
                for limit, hold in wanted]

    def _row(self, row: BudgetRow, hold: Callable[[BudgetRow], BudgetRow]) -> BudgetRow:
        begun, self._folders = time.monotonic(), []
        self.say(f"{row.kernel} {row.name}")
        try:
            row = hold(row)
        except Interrupted:
            raise
        except KernelwrightError as error:
            self.first_exit = self.first_exit or error.exit_code
            row = replace(row, why=error.line(), error=error.as_dict())
        return replace(row, elapsed_s=round(time.monotonic() - begun, 3), profiles=tuple(self._folders))

    def _duration(self, kernel: Kernel, budget: Budget, row: BudgetRow) -> BudgetRow:
        """Over only where a second process says so too: one process can be unlucky for life."""
        assert budget.duration_us is not None
        found = self._timed(kernel, row.version, budget)
        outcome, why = duration_outcome(_timing(found), budget.duration_us), ""
        if outcome == "over":
            again = self._timed(kernel, row.version, budget)
            second = duration_outcome(_timing(again), budget.duration_us)
            if second != "over":
                why = f"a first process took {_words(_timing(found))}, a second one {_words(_timing(again))}"
                found, outcome = again, "unsure"
            else:
                why = f"so in a second process: {_words(_timing(again))}"
        elif outcome == "unsure":
            why = "the limit lies within the noise"
        timing = _timing(found)
        interval = timing.interval_ns
        return replace(row, outcome=outcome, measured=_words(timing), value=timing.median_ns / 1000,
                       interval=(interval[0] / 1000, interval[1] / 1000) if interval else None, why=_with(why, duration_warning(found)))

    def _versus(self, kernel: Kernel, budget: Budget, row: BudgetRow) -> BudgetRow:
        """Pairs of fresh processes, which of the two comes first taking turns."""
        assert budget.versus is not None
        own: list[float] = []
        other: list[float] = []
        doubt = None
        for pair in range(self.args.pairs):
            sides = [(row.version, own), (budget.versus, other)]
            for version, medians in sides if pair % 2 == 0 else reversed(sides):
                found = self._timed(kernel, version, budget)
                if version is None and found.capture_metadata.version == budget.versus:  # of a VERSIONS that can't be read off the file
                    raise _against_itself(self.project, kernel, budget)
                medians.append(_timing(found).median_ns)
                doubt = doubt or duration_warning(found)
        pct, low, high = slower_pct(own, other)
        outcome: Outcome = decide(low, high, budget.slower_pct)
        return replace(row, outcome=outcome, measured=f"{pct:+.1f}% ({low:+.1f}% to {high:+.1f}%), {self.args.pairs} pairs", value=pct,
                       interval=(low, high), why=_with("the limit lies within the noise" if outcome == "unsure" else "", doubt))

    def _timed(self, kernel: Kernel, version: str | None, budget: Budget) -> Profile:
        """One profile in mode event, in a process of its own."""
        params = {name: str(value) for name, value in budget.params.items()}
        workload: WorkloadRef = workload_of(self.project, Meant(kernel, version), params)
        refuse_script(workload, "bench")
        args = self.args
        options = ProfileOptions(device=device_of(args, workload), clocks=clocks_of(args, workload), python=args.python,
                                 timeout_s=args.timeout, command=tuple(sys.argv))
        self._count += 1
        place = self.folder / safe_name("-".join(filter(None, (f"{self._count:03}", kernel.name, version))))
        done = profile(workload, "event", place, options, say=self.say)
        write_run(done)
        self._folders.append(str(done.out_dir))
        return done.profile


def _timing(found: Profile) -> Measurement:
    assert found.timing is not None  # mode event always has one
    return found.timing


def _words(timing: Measurement) -> str:
    interval = timing.interval_ns
    reach = f" ({interval[0] / 1000:.2f} to {interval[1] / 1000:.2f})" if interval else f" ({timing.samples} samples, noise not known)"
    return f"{timing.median_ns / 1000:.2f} us{reach}"


def _with(why: str, doubt: str | None) -> str:
    return "; ".join(part for part in (why, f"the timing is in doubt: {doubt}" if doubt else "") if part)

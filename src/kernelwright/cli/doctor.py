"""doctor: says what this machine can do, what is missing, and the exact fix. Exit 0 whenever the report could be made."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from ..capture.doctor import Examination, examine
from ..capture.system_view import real_system
from ..model.errors import printable
from ..model.saying import Say
from .common import Answer, no_params

HELP = "say what this machine can do, what is missing, and the fix"
AVAILABLE_MODES = ("event", "annotation", "ncu", "nsys")
"""The modes that profile_kernel has in this version; a test holds this to what it really does."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The programs that other verbs let one name."""
    parser.add_argument("--python", metavar="PATH", help="the interpreter that has the workload's torch")
    parser.add_argument("--ncu-executable", metavar="PATH", help="Nsight Compute's ncu")
    parser.add_argument("--nsys-executable", metavar="PATH", help="Nsight Systems' nsys")


def run(args: argparse.Namespace, params: dict[str, str], _say: Say) -> Answer:
    """Examine and report. A lack is content, not a failure."""
    no_params(params, verb="doctor")
    report = examine(real_system(args.python), AVAILABLE_MODES, ncu=args.ncu_executable, nsys=args.nsys_executable)
    return Answer(report.model_dump(mode="json"), render(report), tail=f"examined in {report.elapsed_s:.1f} s")


def render(report: Examination) -> str:
    """The report for a person: one line a check, one a mode, below it where its figures come from and the fix of each lack."""
    width = max(len(name) for name in [*report.modes, *(check.name for check in report.checks)])
    lines = ["Machine"]
    for check in report.checks:
        lines += _lines(check.name, check.status, check.detail, _mends(check.fix, check.advice), width)
    lines += ["", "Modes"]
    for name, mode in report.modes.items():
        figures = [f"{figure}: {source}" for figure, source in mode.figures.items()]
        lines += _lines(name, "works" if mode.works else "no", mode.evidence, [*figures, *_mends(mode.fix, mode.advice)], width)
    return "\n".join(lines)


def _mends(fix: str, advice: str) -> list[str]:
    return [f"fix: {fix}"] * bool(fix) + [f"{'note' if fix else 'fix'}: {advice}"] * bool(advice)


def _lines(name: str, state: str, detail: str, below: Sequence[str], width: int) -> list[str]:
    indent = f"  {'':<{width}}  {'':<7}    "
    return [f"  {name:<{width}}  {state:<7}  {printable(detail)}", *(f"{indent}{printable(text)}" for text in below)]


"""doctor: says what this machine can do, what is missing, and the exact fix. Exit 0 whenever the report could be made."""

from __future__ import annotations

import argparse

from ..capture.doctor import Examination, examine
from ..capture.system_view import real_system
from ..model.errors import BadInput
from .common import Answer, Say

HELP = "say what this machine can do, what is missing, and the fix"
AVAILABLE_MODES = ("event", "annotation")
"""The modes that profile_kernel has in this version; a test holds this to what it really does."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The programs that other verbs let one name."""
    parser.add_argument("--python", metavar="PATH", help="the interpreter that has the workload's torch")
    parser.add_argument("--ncu-executable", metavar="PATH", help="Nsight Compute's ncu")
    parser.add_argument("--nsys-executable", metavar="PATH", help="Nsight Systems' nsys")


def run(args: argparse.Namespace, params: dict[str, str], _say: Say) -> Answer:
    """Examine and report. A lack is content, not a failure."""
    if params:
        raise BadInput("unknown_argument", f"unknown argument --{next(iter(params))}", where="doctor", fix="see doctor --help")
    report = examine(real_system(args.python), AVAILABLE_MODES, ncu=args.ncu_executable, nsys=args.nsys_executable)
    return Answer(report.model_dump(mode="json"), render(report))


def render(report: Examination) -> str:
    """The report for a person: one line a check, one a mode, each lack with its fix below it."""
    width = max(len(name) for name in [*report.modes, *(check.name for check in report.checks)])
    lines = ["Machine"]
    for check in report.checks:
        lines += _line(check.name, check.status, check.detail, check.fix, width)
    lines += ["", "Modes"]
    for name, mode in report.modes.items():
        lines += _line(name, "works" if mode.works else "no", mode.evidence, mode.fix, width)
    return "\n".join(lines)


def _line(name: str, state: str, detail: str, fix: str, width: int) -> list[str]:
    first = f"  {name:<{width}}  {state:<7}  {detail}"
    return [first, f"  {'':<{width}}  {'':<7}  fix: {fix}"] if fix else [first]

"""What verbs check that only read recordings and reports: no option of a run, and a baseline that is a folder."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..model.errors import BadInput
from ..model.profile import Profile
from ..pipeline.source import exists

_OF_A_RUN = ("warmup", "steps", "steps_from", "run_to_end", "sandbox", "flush_l2", "clocks", "ranks")


def refuse_run_options(args: argparse.Namespace, params: dict[str, str], *, what: str, taken: tuple[str, ...] = ()) -> None:
    """Raises BadInput for the first option, version, script argument or parameter that only a run has.

    what: the thing that is read, with its verb, e.g. "a report is". taken: options (as attributes of args) that make sense here.
    """
    given = [f"--{name.replace('_', '-')}" for name in _OF_A_RUN if name not in taken and getattr(args, name, None)]
    given += ["VERSION"] if args.version is not None else []
    given += ["--"] if args.script_args is not None else []
    given += [f"--{name}" for name in params]
    if given:
        raise BadInput("report_not_run", f"{given[0]} is for a run, and {what} only read", where=args.target, fix="leave it out")


def refuse_other_mode(args: argparse.Namespace, mode: str, what: str) -> None:
    """Raises BadInput where --mode names another mode than the one that reads `what`."""
    if args.mode not in (None, mode):
        raise BadInput("report_not_taken", f"{what} is analysed in mode {mode}, not {args.mode}", where=args.target, fix="leave --mode out")


def baseline_folder(args: argparse.Namespace, mode: str, what: str) -> Profile | None:
    """The profile that --baseline names; None without the option. Raises BadInput for anything but a profile's folder."""
    if not args.baseline:
        return None
    if not exists(Path(args.baseline)):
        raise BadInput("no_baseline", f"of {what} only a profile's folder can be the baseline", where=f"--baseline {args.baseline}",
                       fix=f"name the folder of an earlier profile of mode {mode}")
    return Profile.load(Path(args.baseline))

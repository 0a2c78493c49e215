"""What a profile stands against: what --baseline names, else what the project file asks for."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from ..model.errors import BadInput
from ..model.files import leave_error
from ..model.profile import Profile
from ..model.saying import Say
from ..model.workload import WorkloadRef
from ..pipeline.stored import baseline_of_project, find_baseline
from ..report import baseline_refusal


def baseline_of(args: argparse.Namespace, workload: WorkloadRef, profile: Profile, out_dir: Path, named: Profile | None, say: Say,
                keep: Callable[[], object]) -> Profile | None:
    """The baseline of a finished run. named: one that was given as a folder. keep: writes the run, which is whole, where --baseline
    names what is not there; that is an error, and a project file's baseline that is not there is a line."""
    if named is not None:
        return named
    try:
        if args.baseline:
            return find_baseline(args.baseline, profile, workload)
    except BadInput as error:
        keep()
        leave_error(out_dir, error)
        raise
    return projects_baseline(workload, profile, say)


def projects_baseline(workload: WorkloadRef, profile: Profile, say: Say) -> Profile | None:
    """What the project file's `baseline:` means for a finished run; one that is not there or can't be compared is a line, and None."""
    try:
        found = baseline_of_project(profile, workload)
    except BadInput as error:
        say(f"no baseline: {error.line()}")
        return None
    reason = baseline_refusal(profile, found) if found is not None else None
    if reason is not None:
        say(f"no baseline: {reason}")
        return None
    return found

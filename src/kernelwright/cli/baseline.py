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
from ..pipeline.stored import Baseline, baseline_of_project, find_baseline
from ..report import baseline_refusal


def baseline_of(args: argparse.Namespace, workload: WorkloadRef, profile: Profile, out_dir: Path, named: Profile | None, say: Say,
                keep: Callable[[], object]) -> tuple[Profile, Profile | None]:
    """(the profile, its baseline) of a finished run; the profile with a warning where the baseline's version was edited since. named: one
    that was given as a folder. keep: writes the run, which is whole, where --baseline names what is not there; that is an error, and a
    project file's baseline that is not there is a line."""
    if named is not None:
        return profile, named
    try:
        if args.baseline:
            return _with_doubt(profile, find_baseline(args.baseline, profile, workload), say)
    except BadInput as error:
        keep()
        leave_error(out_dir, error)
        raise
    return projects_baseline(workload, profile, say)


def projects_baseline(workload: WorkloadRef, profile: Profile, say: Say) -> tuple[Profile, Profile | None]:
    """(the profile, what the project file's `baseline:` means for it); one that is not there or can't be compared is a line, and None."""
    try:
        found = baseline_of_project(profile, workload)
    except BadInput as error:
        say(f"no baseline: {error.line()}")
        return profile, None
    reason = baseline_refusal(profile, found.profile) if found is not None else None
    if reason is not None:
        say(f"no baseline: {reason}")
    return _with_doubt(profile, found, say) if found is not None and reason is None else (profile, None)


def _with_doubt(profile: Profile, found: Baseline, say: Say) -> tuple[Profile, Profile]:
    if found.doubt is None:
        return profile, found.profile
    say(f"warning: {found.doubt}")
    return profile.model_copy(update={"warnings": (*profile.warnings, found.doubt)}), found.profile

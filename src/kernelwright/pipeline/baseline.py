"""Finds the profile that `--baseline DIR|VERSION` means."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from ..model.errors import BadInput
from ..model.profile import Profile
from ..model.workload import WorkloadRef
from .profile import params_folder, safe_name


def find_baseline(named: str, profile: Profile, workload: WorkloadRef) -> Profile:
    """The stored profile that is meant; whether the two may be compared is the caller's question (report layer).

    A folder or profile.json is taken as it is; another word is a version of the same kernel: its newest stored profile with
    the same mode and parameters. Raises BadInput when there is no such profile.
    """
    path = Path(named)
    return load_profile(path) if path.exists() else _stored(named, profile, workload)


def load_profile(path: Path) -> Profile:
    """A stored profile (its folder or its profile.json). Raises BadInput."""
    try:
        return Profile.load(path)
    except OSError as error:
        raise BadInput("no_profile", "holds no profile.json", where=str(path), fix="name a profile's folder") from error
    except ValidationError as error:
        raise BadInput("broken_profile", f"is not a profile.json of this version ({error.error_count()} faults)", where=str(path),
                       fix="profile again") from error


def _stored(version: str, profile: Profile, workload: WorkloadRef) -> Profile:
    folder = Path.cwd() / "out" / "profiles" / profile.capture_metadata.mode / safe_name(workload.name) / params_folder(profile.parameters)
    runs = sorted(folder.iterdir(), reverse=True) if folder.is_dir() else []
    for run in runs:
        if (run / "profile.json").is_file():
            stored = load_profile(run)
            if stored.capture_metadata.version == version:
                return stored
    raise BadInput("no_baseline", f"no stored profile of {workload.name} {version} with these parameters", where="--baseline",
                   fix=f"profile it first, or name a profile's folder (looked in {folder})")

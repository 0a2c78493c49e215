"""Stored profiles: where they lie, how they are read, and which one a person means."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ..model.errors import BadInput
from ..model.profile import Profile
from ..model.workload import WorkloadRef

MAX_NAME_CHARACTERS = 100


def safe_name(text: str) -> str:
    """A file name out of any text: letters, digits, "._=-" stay, the rest becomes "_"; at most 100 characters."""
    return re.sub(r"[^\w.=-]+", "_", text).strip("._")[:MAX_NAME_CHARACTERS] or "unnamed"


def params_folder(params: Mapping[str, Any]) -> str:
    """The <params> part of the artifact tree, e.g. "b=32_s=16_dtype=bfloat16"; "default" without parameters."""
    return safe_name("_".join(f"{key}={value}" for key, value in params.items())) if params else "default"


def read_params(folder: Path) -> dict[str, Any]:
    """params.json of a stored profile. Raises BadInput."""
    try:
        document: dict[str, Any] = json.loads((folder / "params.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadInput("no_params", "has no readable params.json", where=str(folder), fix="name a profile's folder") from error
    return document


def load_profile(path: Path) -> Profile:
    """A stored profile (its folder or its profile.json). Raises BadInput."""
    try:
        return Profile.load(path)
    except OSError as error:
        raise BadInput("no_profile", "holds no profile.json", where=str(path), fix="name a profile's folder") from error
    except ValidationError as error:
        raise BadInput("broken_profile", f"is not a profile.json of this version ({error.error_count()} faults)", where=str(path),
                       fix="profile again") from error


def find_baseline(named: str, profile: Profile, workload: WorkloadRef) -> Profile:
    """The stored profile that is meant; whether the two may be compared is the caller's question (report layer).

    A folder or profile.json is taken as it is; another word is a version of the same kernel: its newest stored profile with
    the same mode and parameters. Raises BadInput when there is no such profile.
    """
    path = Path(named)
    return load_profile(path) if path.exists() else _stored(named, profile, workload)


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

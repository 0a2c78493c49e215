"""A stored profile.json, read with faults in one line."""

from __future__ import annotations

import json
import os
from pathlib import Path

from pydantic import ValidationError

from .errors import BadInput
from .measurement import COLD, PAIRED
from .nearest import did_you_mean
from .profile import SCHEMA_VERSION, Profile

FIX = "name a profile's folder"


def read_profile(path: Path) -> Profile:
    """A profile.json, or the one in a folder. Raises BadInput."""
    file = path / "profile.json" if path.is_dir() else path
    where = str(file.absolute())
    try:
        if not file.is_file():  # a pipe or a device would never end
            raise BadInput("no_profile", "there is no profile.json", where=where, fix=_meant(path))
        return _flushed(Profile.model_validate_json(file.read_bytes()), file.parent).at(file.parent)
    except OSError as error:
        raise BadInput("unreadable", f"can't be read: {error.strerror or error}", where=where, fix=FIX) from error
    except ValidationError as error:
        newer = _newer(file)
        if newer is not None:
            raise BadInput("newer_profile", f"was written by a newer kernelwright (schema {newer}; this one reads {SCHEMA_VERSION})",
                           where=where, fix="upgrade kernelwright, or profile again with this one") from error
        raise BadInput("broken_profile", f"is not a profile.json of this version ({error.error_count()} faults)", where=where,
                       fix="profile again") from error


def _flushed(profile: Profile, folder: Path) -> Profile:
    """Of a profile from before the timer's name told it, params.json says whether the L2 cache was emptied before each call."""
    if profile.timing is None or profile.timing.cold or PAIRED in profile.timing.timer:
        return profile
    try:
        options = json.loads((folder / "params.json").read_bytes())["options"]
        if options["flush_l2"] is not True:
            return profile
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return profile
    timing = profile.timing.model_copy(update={"timer": f"{profile.timing.timer}, {COLD}"})
    return profile.model_copy(update={"timing": timing})


def _meant(path: Path) -> str:
    if path.is_dir() and (path / "error.json").is_file():
        return f"the run into this folder failed, error.json says why: profile again, or {FIX}"
    return FIX if os.path.lexists(path) else did_you_mean(path, FIX, suffix=".json", folders=True)


def _newer(file: Path) -> str | None:
    """The schema version of a document whose major or minor number is above ours, else None."""
    try:
        found = json.loads(file.read_bytes())["schema_version"]
        numbers = tuple(int(part) for part in found.split("."))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return found if numbers > tuple(int(part) for part in SCHEMA_VERSION.split(".")) else None

"""The profile of a compiled workload without its own torch.compile, from what the probe recorded beside the workload's own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pydantic import ValidationError

from ..model.capture import ProbeResult
from ..model.errors import BadInput, KernelwrightError
from ..model.profile import Profile
from .assemble import Run, assemble, with_recording

UNCOMPILED_RESULT = "uncompiled/result.json"
"""In raw/, where the probe writes it (probe/without_compile.py)."""


def with_uncompiled(document: Profile, run: Run) -> tuple[Profile, Profile | None]:
    """(the workload's own profile, with a warning where the other can't be made; that without torch.compile, None where there is none)."""
    try:
        return document, profile_uncompiled(run)
    except KernelwrightError as error:
        words = f"the recording without the workload's own torch.compile can't be used: {Path(error.where).name} {error.message}"
        return document.model_copy(update={"warnings": (*document.warnings, words)}), None


def profile_uncompiled(run: Run) -> Profile | None:
    """None where it was not recorded. Raises BadInput for recordings that can't be read."""
    file = run.raw / UNCOMPILED_RESULT
    try:
        result = ProbeResult.model_validate_json(file.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        raise BadInput("broken_result", "is not a result of the probe", where=str(file), fix="profile again") from error
    return assemble(with_recording(replace(run, raw=file.parent, result=result, counters=None, recorded=None, warnings=())))

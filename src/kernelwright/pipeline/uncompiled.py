"""The profile of a compiled workload without its own torch.compile, from what the probe recorded beside the workload's own."""

from __future__ import annotations

from dataclasses import replace

from pydantic import ValidationError

from ..model.capture import ProbeResult
from ..model.errors import BadInput
from ..model.profile import Profile
from .assemble import Run, assemble, with_recording

UNCOMPILED_RESULT = "uncompiled/result.json"
"""In raw/, where the probe writes it (probe/without_compile.py)."""


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

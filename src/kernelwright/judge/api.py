"""judge() as a person calls it from Python: files and plain values in, a Verdict out."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ..model.errors import BadInput
from ..model.saying import Say, silent
from ..model.verdict import Verdict
from ..model.workload import WorkloadRef
from ..pipeline.source import check_source
from ..pipeline.target import refuse_script, resolve_target
from . import run
from .options import JudgeOptions
from .session import ReferenceSession


def judge(
    workload: str | os.PathLike[str] | WorkloadRef, candidate: str | os.PathLike[str], options: JudgeOptions | None = None, *,
    params: Mapping[str, object] | None = None, version: str | None = None, session: ReferenceSession | None = None,
    deadline_s: float | None = None, say: Say = silent, **changes: Any,
) -> Verdict:
    """Decide whether `candidate` may stand in for `workload`, and whether it is faster.

    workload: path of the workload's file, a kernel's name in the project file, or a WorkloadRef.
    candidate: path of a file with ModelNew, optimize(model, inputs), BACKEND, or a function.
    params, version: of the workload, e.g. params={"b": 32}; not for a WorkloadRef, which has its own.
    changes: fields of JudgeOptions, e.g. precision="bf16", seed=7, device="cpu", max_timing_s=2.0, rounds=5; they win over `options`.
    session: a live ReferenceSession of the same workload, so that the reference starts once for many candidates.
    deadline_s: time.monotonic() value after which OutOfTime is raised, the candidate's process ended.

    Whatever the candidate does is a verdict; nothing is written unless keep_dir says where. Raises BadInput (a file, an option or an entry
    that can't be used), OfReference (the workload itself fails or gives no evidence), MachineLacks (no interpreter with torch), OutOfTime.
    """
    if isinstance(workload, WorkloadRef):
        if params is not None or version is not None:
            raise BadInput("usage", "params and version belong to the WorkloadRef", where="judge()", fix="set them there")
    else:
        workload = resolve_target(os.fspath(workload), version, {name: str(value) for name, value in (params or {}).items()}, None)
    refuse_script(workload, "judge")
    file = Path(candidate)
    check_source(file, "candidate")
    base = options or (session.options if session is not None else JudgeOptions())
    return run.judge(workload, file, with_changes(base, changes), session=session, deadline_s=deadline_s, say=say)


def with_changes(options: JudgeOptions, changes: Mapping[str, Any]) -> JudgeOptions:
    """`options` with these fields set and checked. Raises BadInput for an unknown field or a value that it can't have."""
    for name in changes:
        if name not in JudgeOptions.model_fields:
            near = difflib.get_close_matches(name, JudgeOptions.model_fields, n=1)
            raise BadInput("unknown_argument", f"unknown option {name!r}", where="judge()",
                           fix=f"did you mean {near[0]}?" if near else f"one of: {', '.join(JudgeOptions.model_fields)}")
    try:
        return JudgeOptions.model_validate({**options.model_dump(), **changes})
    except ValidationError as error:
        first = error.errors()[0]
        raise BadInput("usage", f"{first['loc'][0] if first['loc'] else 'option'}: {first['msg']}", where="judge()",
                       fix="see help(kernelwright.JudgeOptions)") from error

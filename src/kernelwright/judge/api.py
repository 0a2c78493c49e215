"""judge() as a person calls it from Python: files and plain values in, a Verdict out."""

from __future__ import annotations

import contextlib
import difflib
import os
import tempfile
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
from .bundle import Against, against, read_bundle, write_bundle
from .options import JudgeOptions
from .session import ReferenceSession
from .sources import collect


def judge(
    workload: str | os.PathLike[str] | WorkloadRef, candidate: str | os.PathLike[str], options: JudgeOptions | None = None, *,
    params: Mapping[str, object] | None = None, version: str | None = None, session: ReferenceSession | None = None,
    deadline_s: float | None = None, say: Say = silent, bundle: str | os.PathLike[str] | None = None, **changes: Any,
) -> Verdict:
    """Decide whether `candidate` may stand in for `workload`, and whether it is faster.

    workload: path of the workload's file, a kernel's name in the project file, or a WorkloadRef.
    candidate: path of a file with ModelNew, optimize(model, inputs), BACKEND, or a function.
    params, version: of the workload, e.g. params={"b": 32}; not for a WorkloadRef, which has its own.
    changes: fields of JudgeOptions, e.g. precision="bf16", seed=7, device="cpu", max_timing_s=2.0, rounds=5; they win over `options`.
    session: a live ReferenceSession of the same workload, so that the reference starts once for many candidates.
    deadline_s: time.monotonic() value after which OutOfTime is raised, the candidate's process ended.
    bundle: write the judgement there (FILE.tar.xz), for `rejudge` on another machine.

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
    asked = with_changes(base, changes)
    sources = collect(workload, file) if bundle is not None else None
    verdict = run.judge(workload, file, asked, session=session, deadline_s=deadline_s, say=say)
    if bundle is not None and sources is not None:
        write_bundle(Path(bundle).absolute(), sources, workload, asked, verdict)
    return verdict


def rejudge(
    bundle: str | os.PathLike[str], folder: str | os.PathLike[str] | None = None, *, say: Say = silent, **machine: Any,
) -> tuple[Verdict, Against]:
    """Judge a bundle again, here: the new verdict, and how it compares with the bundled one. It runs the bundle's code.

    folder: unpack there and leave it; None: a temporary folder that is removed.
    machine: fields of JudgeOptions that are this machine's, e.g. device="cuda", python="/path/python", timeout_s=60.
    Raises BadInput for a bundle that is cut off, foreign, too large or unsafe, and whatever `judge` raises.
    """
    opened = read_bundle(Path(bundle))
    with contextlib.ExitStack() as stack:
        place = Path(folder) if folder is not None else Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kernelwright-")))
        workload, candidate = opened.extract(place)
        say(opened.announce())
        verdict = judge(workload, candidate, with_changes(opened.options(), machine), say=say)
    return verdict, against(opened.verdict, verdict)


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

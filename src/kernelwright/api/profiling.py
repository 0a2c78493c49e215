"""profile() as a person calls it from Python: plain values in, a Profile out, its files written."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import get_args

from ..capture.clocks import valid_request
from ..cli.baseline import projects_baseline
from ..model.errors import BadInput, KernelwrightError
from ..model.files import leave_error
from ..model.profile import Mode, Profile
from ..model.saying import Say, silent
from ..model.workload import CompileMode, Device, WorkloadRef
from ..pipeline import profile as runs
from ..pipeline.ncu import Selection
from ..pipeline.ncu_live import profile_ncu
from ..pipeline.nsys_live import profile_nsys
from ..pipeline.target import resolve_target
from ..report import write_profile
from ..report.ncu_write import write_ncu_profile
from ..report.nsys_write import write_nsys_profile


def profile(
    workload: str | os.PathLike[str] | WorkloadRef, mode: Mode = "annotation", out_dir: str | os.PathLike[str] | None = None,
    version: str | None = None, bench_runs: int | None = None, *, params: Mapping[str, object] | None = None, warmup: int | None = None,
    device: Device = "auto", clocks: str | None = None, python: str | os.PathLike[str] | None = None, timeout_s: float | None = None,
    compile_mode: CompileMode = "eager", flush_l2: bool = False, say: Say = silent,
) -> Profile:
    """Profile one workload in one mode, write its documents, and return it; `.folder` says where they are.

    workload: path of a file, a kernel of the project file or one of its versions, or a WorkloadRef (which has its own version and params).
    mode: "annotation", "event", "ncu" or "nsys". out_dir: None: a new folder under out/profiles/.
    bench_runs: timing samples in mode event, profiled steps in modes annotation and nsys; None: as many as needed. Not for mode ncu.
    params: of the workload, e.g. {"b": 32}. clocks: "none", "lock" or MHz as text; None: the project file's, else "none".
    python: the interpreter that has the workload's torch; None: found. timeout_s: longest time that the workload may take.
    flush_l2: mode event: empty the L2 cache before each timed call. say: gets lines on the progress.
    What the project file's `baseline:` asks for stands in the documents' `vs Baseline`, as on the command line.

    Raises BadInput, MachineLacks, WorkloadFailed (all KernelwrightError); a failed run leaves error.json in its folder.
    """
    _check(mode, bench_runs, warmup, clocks, timeout_s)
    _check_words(workload, version, device, compile_mode)
    if isinstance(workload, WorkloadRef):
        if params is not None or version is not None:
            raise BadInput("usage", "params and version belong to the WorkloadRef", where="profile()", fix="set them there")
        found = workload
    else:
        found = resolve_target(os.fspath(workload), version, {name: str(value) for name, value in (params or {}).items()}, None)
    options = runs.ProfileOptions(
        device=device if device != "auto" else found.device, clocks=clocks or found.clocks or "none",
        python=os.fspath(python) if python is not None else None, timeout_s=timeout_s, warmup=warmup, steps=bench_runs,
        compile_mode=compile_mode, flush_l2=flush_l2, stdout_to_stderr=True)
    return _run(found, mode, Path(out_dir).absolute() if out_dir is not None else None, options, say)


def _check(mode: str, bench_runs: int | None, warmup: int | None, clocks: str | None, timeout_s: float | None) -> None:
    for name, value, least in (("bench_runs", bench_runs, 1), ("warmup", warmup, 0)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
            raise BadInput("usage", f"{name} is {value!r}", where="profile()", fix=f"a whole number from {least}")
    if bench_runs is not None and mode == "ncu":
        raise BadInput("usage", "bench_runs is given, and mode ncu replays one call", where="profile()", fix="leave it out")
    if clocks is not None and not valid_request(clocks):
        raise BadInput("usage", f"clocks is {clocks!r}", where="profile()", fix='"none", "lock" or a number of MHz as text')
    if timeout_s is not None and not timeout_s > 0:
        raise BadInput("usage", f"timeout_s is {timeout_s!r}", where="profile()", fix="a number of seconds above 0")


def _check_words(workload: object, version: object, device: object, compile_mode: object) -> None:
    for name, value, known in (("device", device, get_args(Device)), ("compile_mode", compile_mode, get_args(CompileMode))):
        if value not in known:
            raise BadInput("usage", f"{name} is {value!r}", where="profile()", fix=f"one of: {', '.join(known)}")
    if version is not None and not isinstance(version, str):
        raise BadInput("usage", f"version is {version!r}", where="profile()", fix="the name of a version, as text")
    if not isinstance(workload, (str, os.PathLike, WorkloadRef)):
        raise BadInput("usage", f"workload is {str(workload)[:100]!r}", where="profile()",
                       fix="a path, a name of the project, or a WorkloadRef")


def _run(workload: WorkloadRef, mode: str, out_dir: Path | None, options: runs.ProfileOptions, say: Say) -> Profile:
    if mode == "ncu":
        captured = profile_ncu(workload, out_dir, options, Selection(), say=say)
        document, folder = captured.profile, captured.out_dir
    elif mode == "nsys":
        done = profile_nsys(workload, out_dir, options, say=say)
        document, folder = done.profile, done.out_dir
    else:
        done = runs.profile(workload, mode, out_dir, options, say=say)
        document, folder = done.profile, done.out_dir
    document, baseline = projects_baseline(workload, document, say)
    try:
        if mode == "ncu":
            write_ncu_profile(document, captured.reports, folder, baseline=baseline, params_doc=captured.params)
        elif mode == "nsys":
            assert done.trace is not None
            write_nsys_profile(document, done.trace, folder, baseline=baseline, params_doc=done.params)
        else:
            write_profile(document, folder, trace=done.trace, baseline=baseline, params_doc=done.params)
    except KernelwrightError as error:
        leave_error(folder, error)
        raise
    return document.at(folder)

"""profile_kernel in mode nsys: recordings made elsewhere (.nsys-rep, .sqlite, torch.profiler's traces), and workloads."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..model.errors import KernelwrightError
from ..model.files import leave_error
from ..model.profile import Profile
from ..model.saying import Say
from ..model.trace import Trace
from ..model.workload import WorkloadRef
from ..pipeline.nsys import analyse_recording
from ..pipeline.nsys_live import profile_nsys
from ..pipeline.profile import ProfileOptions
from ..report import render_contract
from ..report.nsys_write import write_nsys_profile
from .baseline import baseline_of
from .call_time import call_data, call_line
from .common import Answer
from .only_read import baseline_folder, refuse_other_mode, refuse_run_options


def run_recording(args: argparse.Namespace, params: dict[str, str], say: Say) -> Answer:
    """Analyse and write the artifacts. Raises BadInput for options that only a run has."""
    refuse_other_mode(args, "nsys", "a recording")
    refuse_run_options(args, params, what="a recording is", taken=("steps_from",))
    baseline = baseline_folder(args, "nsys", "a recording")
    done = analyse_recording(Path(args.target), args.out, name=args.model_name, device_name=args.device_name, steps_from=args.steps_from,
                             nsys_executable=args.nsys_executable, keep_report=args.keep_nsys_report, command=tuple(sys.argv), say=say)
    return _answer(done.profile, done.trace, done.out_dir, done.params, baseline)


def run_nsys_mode(workload: WorkloadRef, args: argparse.Namespace, options: ProfileOptions, named: Profile | None, say: Say) -> Answer:
    """Record a workload and write the artifacts. named: a baseline that was given as a folder."""
    done = profile_nsys(workload, args.out, options, say=say)
    trace = done.trace
    assert trace is not None
    own, baseline = baseline_of(args, workload, done.profile, done.out_dir, named, say,
                                lambda: write_nsys_run(done.profile, trace, done.out_dir, done.params, None))
    return _answer(own, trace, done.out_dir, done.params, baseline)


def _answer(profile: Profile, trace: Trace, out_dir: Path, params: Mapping[str, Any], baseline: Profile | None) -> Answer:
    files = write_nsys_run(profile, trace, out_dir, params, baseline)
    assert profile.recording is not None
    data = {"out_dir": str(out_dir), **{key: str(path) for key, path in files.items()}, "recorder": profile.recording.recorder,
            **call_data(profile)}
    call = f"\n{call_line(profile)}" if profile.timing is not None else ""
    return Answer(data, render_contract(profile, baseline).rstrip("\n"),
                  tail=f"\nreport: {files['report']}\ntimeline: {files['timeline']}{call}")


def write_nsys_run(profile: Profile, trace: Trace, out_dir: Path, params: Mapping[str, Any], baseline: Profile | None) -> dict[str, Path]:
    """Write a finished run's documents; leaves error.json when that fails."""
    try:
        return write_nsys_profile(profile, trace, out_dir, baseline=baseline, params_doc=params)
    except KernelwrightError as error:
        leave_error(out_dir, error)
        raise

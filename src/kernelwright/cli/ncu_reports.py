"""profile_kernel in mode ncu: captures made elsewhere (FILE.ncu-rep, or a folder of them), and workloads."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from ..model.errors import KernelwrightError
from ..model.files import leave_error
from ..model.profile import Profile
from ..model.saying import Say
from ..model.workload import WorkloadRef
from ..pipeline.ncu import NcuRun, Selection, analyse
from ..pipeline.ncu_live import profile_ncu
from ..pipeline.profile import ProfileOptions
from ..report import render_contract
from ..report.ncu_write import write_ncu_profile
from .baseline import baseline_of
from .common import Answer
from .only_read import baseline_folder, refuse_other_mode, refuse_run_options


def run_reports(args: argparse.Namespace, params: dict[str, str], selection: Selection, say: Say) -> Answer:
    """Analyse and write the artifacts. Raises BadInput for options that only a run has."""
    refuse_other_mode(args, "ncu", "a report of ncu")
    refuse_run_options(args, params, what="a report is")
    baseline = baseline_folder(args, "ncu", "a report")
    done = analyse(Path(args.target), args.out, selection=selection, name=args.model_name, device_name=args.device_name,
                   command=tuple(sys.argv), say=say)
    return _answer(done, baseline)


def run_ncu_mode(workload: WorkloadRef, args: argparse.Namespace, options: ProfileOptions, selection: Selection, named: Profile | None,
                 say: Say) -> Answer:
    """Capture a workload under ncu and write the artifacts. named: a baseline that was given as a folder."""
    done = profile_ncu(workload, args.out, options, selection, say=say)
    own, baseline = baseline_of(args, workload, done.profile, done.out_dir, named, say, lambda: write_ncu_run(done))
    return _answer(replace(done, profile=own), baseline)


def _answer(done: NcuRun, baseline: Profile | None) -> Answer:
    files = write_ncu_run(done, baseline)
    data = {"out_dir": str(done.out_dir), **{key: str(path) for key, path in files.items()}}
    return Answer(data, render_contract(done.profile, baseline).rstrip("\n"), tail=f"\nreport: {files['report']}")


def write_ncu_run(done: NcuRun, baseline: Profile | None = None) -> dict[str, Path]:
    """Write a finished run's documents; leaves error.json when that fails."""
    try:
        return write_ncu_profile(done.profile, done.reports, done.out_dir, baseline=baseline, params_doc=done.params)
    except KernelwrightError as error:
        leave_error(done.out_dir, error)
        raise

"""profile_kernel TARGET [VERSION] --mode annotation|event|ncu|nsys: one profile in one mode; prints the contract."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ..model.errors import BadInput, KernelwrightError
from ..model.files import leave_error
from ..model.profile import Profile
from ..model.saying import Say
from ..model.workload import WorkloadRef
from ..pipeline.counters import CounterOptions
from ..pipeline.ncu import Selection, is_report_target
from ..pipeline.nsys import is_recording_target
from ..pipeline.profile import ProfileOptions, ProfileRun, profile
from ..pipeline.stored import check_baseline, is_place
from ..pipeline.target import refuse_script
from ..report import render_contract, render_top, write_profile
from ..report.ready import PARTS
from .baseline import baseline_of
from .call_time import call_data, call_line
from .common import Answer, add_profile_options, add_run_options, clocks_of, count, device_of, positive_count
from .ncu_reports import run_ncu_mode, run_reports
from .nsys_recordings import run_nsys_mode, run_recording
from .ranks import add_rank_options, is_ranks_target, run_rank_folder, run_ranks_mode
from .several import profiles_answer, run_each
from .targets import TARGETS, workloads

HELP = "profile one workload in one mode and print the contract"
DESCRIPTION = f"{HELP}; stderr ends with the report's path and the median time of one whole call"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """TARGET, VERSION, --mode and the shared options."""
    parser.add_argument("targets", metavar=TARGETS, nargs="*", help="workload file, any training script (its own arguments go after "
                        "--), a kernel or version of the project file, a report of Nsight Compute (.ncu-rep) or a folder of them, or a "
                        "recording of Nsight Systems (.nsys-rep, .sqlite) or torch.profiler (.json, .json.gz); several give one table; "
                        "none: the version of the project that changed last")
    parser.add_argument("--all", action="store_true", help="every version of the kernels named, in one table")
    parser.add_argument("--mode", choices=("annotation", "event", "ncu", "nsys"),
                        help="default: annotation; ncu for a report, nsys for a recording")
    add_run_options(parser)
    add_profile_options(parser)
    group = parser.add_argument_group("mode ncu", "Which launches are looked at; of a report all, else the heaviest kernels.")
    group.add_argument("--kernel", metavar="REGEX", help="kernels whose name matches")
    group.add_argument("--launch", type=count, metavar="N", help="the N-th launch (of those that match), from 0, as ncu numbers them")
    group.add_argument("--operator", metavar="NAME",
                       help="launches inside an operator or NVTX range whose name holds NAME, e.g. aten::addmm")
    group.add_argument("--heaviest", type=positive_count, metavar="K", help="the K kernels that take the most time")
    group = parser.add_argument_group("mode nsys")
    group.add_argument("--keep-nsys-report", action="store_true",
                       help="keep the .nsys-rep in raw/ although it holds the environments of other processes")
    group = parser.add_argument_group(
        "scripts", "A file without an entry point is run as it is: 2 warm-up and 5 profiled steps, then a clean exit.")
    group.add_argument("--steps-from", metavar="RANGE", help="a step is the record_function or NVTX range of this name "
                       "(default: a step ends with an optimizer step)")
    group.add_argument("--run-to-end", action="store_true", help="let the script finish after the profiled steps")
    group.add_argument("--sandbox", action="store_true", help="run the script in a scratch copy of the working folder")
    add_rank_options(parser)
    parser.set_defaults(script_args=None)


def run(args: argparse.Namespace, params: dict[str, str], say: Say) -> Answer:
    """Profile and write the artifacts."""
    args.target, args.version = args.targets[0] if args.targets else "", args.targets[1] if len(args.targets) > 1 else None
    selection = Selection(kernel=args.kernel, launch=args.launch, operator=args.operator, heaviest=args.heaviest)
    if args.targets and is_report_target(args.target, as_folder=args.mode == "ncu"):
        return run_reports(args, params, selection, say)
    if args.targets and is_recording_target(args.target, args.mode):
        _check_selection(args.mode or "nsys", selection)
        return run_recording(args, params, say)
    if args.targets and is_ranks_target(args.target, args.mode):
        return run_rank_folder(args, params, say)
    mode = args.mode or "annotation"
    _check_selection(mode, selection)
    _check_counters(mode, args)
    found = workloads(args, params, say, verb="profile_kernel")
    if len(found) == 1:
        return _profile(found[0], args, mode, selection, say)
    for workload in found:
        refuse_script(workload, "a command with several targets")
    return _profiles(found, args, mode, selection, say)


def _profiles(found: Sequence[WorkloadRef], args: argparse.Namespace, mode: str, selection: Selection, say: Say) -> Answer:
    """Several, one after another. A version that --baseline names is measured before the others, which stand against that profile."""
    folders: dict[tuple[str, str | None], str] = {}

    def is_baseline(workload: WorkloadRef) -> bool:
        return args.baseline is not None and workload.version == args.baseline and not is_place(args.baseline, workload)

    of_this_run = {workload.name for workload in found if is_baseline(workload)}

    def one(workload: WorkloadRef, own: argparse.Namespace) -> Answer:
        if is_baseline(workload):
            own.baseline = None
        elif workload.name in of_this_run:
            own.baseline = folders.get((workload.name, own.baseline), own.baseline)
        answer = _profile(workload, own, mode, selection, say)
        folders[workload.name, workload.version] = answer.data["out_dir"]
        return answer

    named_first = sorted(found, key=lambda workload: not is_baseline(workload))
    return profiles_answer(run_each(named_first, args, one, say))


def _profile(workload: WorkloadRef, args: argparse.Namespace, mode: str, selection: Selection, say: Say) -> Answer:
    """One profile of one workload."""
    _check_script_options(args, workload)
    named = Profile.load(Path(args.baseline)) if args.baseline and is_place(args.baseline, workload) else None
    if args.baseline and named is None and args.ranks is None:
        check_baseline(args.baseline, mode, workload)
    options = ProfileOptions(
        device=device_of(args, workload), clocks=clocks_of(args, workload), python=args.python, timeout_s=args.timeout, warmup=args.warmup,
        steps=args.steps, compile_mode=args.compile_mode, device_name=args.device_name, flush_l2=args.flush_l2, command=tuple(sys.argv),
        steps_from=args.steps_from, run_to_end=args.run_to_end, sandbox=args.sandbox, stdout_to_stderr=args.json,
        counters=CounterOptions(choice=args.counters, budget_s=args.ncu_budget, executable=args.ncu_executable, sudo=args.ncu_sudo),
        nsys_executable=args.nsys_executable, keep_nsys_report=args.keep_nsys_report,
    )
    if args.ranks is not None:
        return run_ranks_mode(workload, args, options, say)
    if mode == "ncu":
        return run_ncu_mode(workload, args, options, selection, named, say)
    if mode == "nsys":
        return run_nsys_mode(workload, args, options, named, say)
    done = profile(workload, mode, args.out, options, say=say, meanwhile=PARTS if mode == "annotation" else ())
    own, baseline = baseline_of(args, workload, done.profile, done.out_dir, named, say, lambda: write_run(done))
    done = replace(done, profile=own)
    files = write_run(done, baseline)
    contract = render_contract(done.profile, baseline)
    table = render_top(done.profile) if "top" in files else ""
    data = {"out_dir": str(done.out_dir), **{key: str(path) for key, path in files.items()}, **call_data(done.profile)}
    return Answer(data, f"{contract}\n{table}".rstrip("\n"), tail=f"\nreport: {files['report']}\n{call_line(done.profile)}")


def _check_selection(mode: str, selection: Selection) -> None:
    if mode != "ncu" and not selection.is_all():
        raise BadInput("only_ncu", "--kernel, --launch, --operator and --heaviest choose launches of mode ncu", where=f"--mode {mode}",
                       fix="add --mode ncu, or leave them out")


def _check_counters(mode: str, args: argparse.Namespace) -> None:
    given = [name for name, asked in (("--ncu-budget", args.ncu_budget is not None), ("--counters full", args.counters == "full")) if asked]
    if given and mode != "annotation":
        instead = "; mode ncu collects all counters of the launches that --kernel, --launch, --operator or --heaviest choose"
        raise BadInput("only_annotation", f"{given[0]} is for mode annotation" + (instead if mode == "ncu" else ""), where=f"--mode {mode}",
                       fix="leave it out")


def _check_script_options(args: argparse.Namespace, workload: WorkloadRef) -> None:
    given = [name for name, value in (("--steps-from", args.steps_from), ("--run-to-end", args.run_to_end), ("--sandbox", args.sandbox))
             if value]
    if given and workload.script is None:
        raise BadInput("not_a_script", f"{given[0]} is for scripts, and this file has an entry point of a workload", where=args.target,
                       fix="leave it out, or add -- to run the file as a script")


def write_run(done: ProfileRun, baseline: Profile | None = None) -> dict[str, Path]:
    """Write a finished run's documents; leaves error.json when that fails."""
    try:
        return write_profile(done.profile, done.out_dir, trace=done.trace, baseline=baseline, params_doc=done.params)
    except KernelwrightError as error:
        leave_error(done.out_dir, error)
        raise

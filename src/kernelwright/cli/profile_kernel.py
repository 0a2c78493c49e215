"""profile_kernel TARGET [VERSION] --mode annotation|event|ncu|nsys: one profile in one mode; prints the contract."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ..model.errors import BadInput, KernelwrightError
from ..model.files import leave_error
from ..model.profile import Profile
from ..pipeline.profile import ProfileOptions, ProfileRun, profile
from ..pipeline.source import exists
from ..pipeline.stored import find_baseline, load_profile
from ..pipeline.target import resolve_target
from ..report import render_contract, write_profile
from .common import Answer, Say, add_profile_options, add_run_options, clocks_of

HELP = "profile one workload in one mode and print the contract"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """TARGET, VERSION, --mode and the shared options."""
    parser.add_argument("target", metavar="TARGET", help="workload file, or a kernel or version of the project file")
    parser.add_argument("version", metavar="VERSION", nargs="?", help="version of a kernel with versions")
    parser.add_argument("--mode", choices=("annotation", "event", "ncu", "nsys"), default="annotation", help="default: annotation")
    add_run_options(parser)
    add_profile_options(parser)


def run(args: argparse.Namespace, params: dict[str, str], say: Say) -> Answer:
    """Profile and write the artifacts."""
    workload = resolve_target(args.target, args.version, params, args.model_name)
    named = load_profile(Path(args.baseline)) if args.baseline and exists(Path(args.baseline)) else None
    options = ProfileOptions(
        device=args.device, clocks=clocks_of(args, workload), python=args.python, timeout_s=args.timeout, warmup=args.warmup,
        steps=args.steps,
        compile_mode=args.compile_mode, device_name=args.device_name, flush_l2=args.flush_l2, command=tuple(sys.argv),
    )
    done = profile(workload, args.mode, args.out, options, say=say)
    baseline = named
    if args.baseline and named is None:
        try:
            baseline = find_baseline(args.baseline, done.profile, workload)
        except BadInput as error:
            write_run(done)  # the measurement is whole, and kept
            leave_error(done.out_dir, error)
            raise
    files = write_run(done, baseline)
    contract = render_contract(done.profile, baseline)
    data = {"out_dir": str(done.out_dir), **{key: str(path) for key, path in files.items()}}
    return Answer(data, contract.rstrip("\n"), tail=f"\nreport: {files['report']}")


def write_run(done: ProfileRun, baseline: Profile | None = None) -> dict[str, Path]:
    """Write a finished run's documents; leaves error.json when that fails."""
    try:
        return write_profile(done.profile, done.out_dir, baseline=baseline, params_doc=done.params)
    except KernelwrightError as error:
        leave_error(done.out_dir, error)
        raise

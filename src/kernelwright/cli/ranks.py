"""profile_kernel for several ranks: a script run once a rank (--ranks N), or a folder of recordings, one a rank."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from ..model.errors import BadInput, KernelwrightError
from ..model.files import leave_error
from ..model.saying import Say
from ..model.workload import WorkloadRef
from ..pipeline.profile import ProfileOptions
from ..pipeline.ranks import RanksRun, compare_folder, profile_ranks, rank_files
from ..report.ranks import render_ranks, write_ranks
from .common import Answer, positive_count
from .only_read import refuse_run_options

MOST_HERE = 64


def add_rank_options(parser: argparse.ArgumentParser) -> None:
    """--ranks."""
    group = parser.add_argument_group("ranks", "Distributed runs: who waits for whom in their collectives.")
    group.add_argument("--ranks", type=rank_count, metavar="N", help="run the script as N processes on this machine, with the variables "
                       "that torchrun sets, each recorded by torch.profiler; a folder of such recordings as TARGET is compared as it is")


def rank_count(text: str) -> int:
    """argparse type of --ranks."""
    value = positive_count(text)
    if 2 <= value <= MOST_HERE:
        return value
    raise argparse.ArgumentTypeError(f"{text!r} is not a number of ranks between 2 and {MOST_HERE}")


def is_ranks_target(target: str, mode: str | None) -> bool:
    """Whether TARGET is a folder of recordings (and the mode, if one is named, is nsys)."""
    return mode in (None, "nsys") and os.path.isdir(target) and bool(rank_files(Path(target)))


def run_rank_folder(args: argparse.Namespace, params: dict[str, str], say: Say) -> Answer:
    """Compare a folder's recordings. Raises BadInput for options that only a run has."""
    refuse_run_options(args, params, what="recordings are", taken=("steps_from",))
    options = ProfileOptions(steps_from=args.steps_from, command=tuple(sys.argv))
    return _answer(compare_folder(Path(args.target), args.out, options, name=args.model_name, say=say))


def run_ranks_mode(workload: WorkloadRef, args: argparse.Namespace, options: ProfileOptions, say: Say) -> Answer:
    """Run a script as several ranks, and compare them. Raises BadInput for what does not go with ranks."""
    if args.mode not in (None, "nsys"):
        raise BadInput("ranks_of_mode", f"--ranks compares timelines, and mode {args.mode} is another question", where="--ranks",
                       fix="leave --mode out")
    for name, given in (("--sandbox", args.sandbox), ("--baseline", args.baseline)):
        if given:
            raise BadInput("not_with_ranks", f"{name} does not go with --ranks", where="--ranks", fix="leave it out")
    return _answer(profile_ranks(workload, args.ranks, args.out, options, say=say))


def _answer(done: RanksRun) -> Answer:
    try:
        files = write_ranks(done.ranks, done.name, done.out_dir, done.traces, params_doc=done.params)
    except KernelwrightError as error:
        leave_error(done.out_dir, error)
        raise
    text = render_ranks(done.ranks, done.name, picture="heat_map" in files)
    data = {"out_dir": str(done.out_dir), **{key: str(path) for key, path in files.items()},
            "recordings": [str(path) for path in done.recordings]}
    return Answer(data, text.rstrip("\n"), tail=f"\nreport: {files['report']}\ntimeline: {files['timeline']}")

"""compare V1 V2 ... --sweep NAME=VALUES: versions of a kernel over the values of one parameter, each point profiled in mode event."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ..model.errors import BadInput, Interrupted, KernelwrightError
from ..model.profile import Profile
from ..model.saying import Say
from ..model.workload import WorkloadRef
from ..pipeline.profile import ProfileOptions, profile
from ..pipeline.reuse import present, reusable
from ..pipeline.stored import analysis_folder
from ..pipeline.target import refuse_script
from ..project import read_project
from ..report.figures import duration_warning
from ..report.sweep import Point, Sweep, render_sweep, write_sweep_figure
from .common import Answer, clocks_of, device_of
from .profile_kernel import write_run
from .several import words_of
from .targets import workloads

MOST_POINTS = 200


def run_sweep(args: argparse.Namespace, params: dict[str, str], say: Say) -> Answer:
    """Measure every version at every value; one that fails there is a warning. Exit as the first failure only where nothing worked."""
    if args.fail_above is not None:
        raise BadInput("usage", "--fail-above holds two profiles against each other, and a sweep has many", where="--sweep",
                       fix="leave one of the two out")
    args.targets, args.model_name = args.profiles, None
    found = workloads(args, params, say, verb="compare")
    for workload in found:
        refuse_script(workload, "a sweep")
    name, values = _asked(args.sweep, found, params)
    if len(values) * len(found) > MOST_POINTS:
        raise BadInput("usage", f"{len(values) * len(found)} points are more than {MOST_POINTS}", where="--sweep", fix="name fewer values")
    doubts: list[str] = []
    errors: list[KernelwrightError] = []
    points, done, folders = [], 0, []
    for value in values:
        row: list[Profile | None] = []
        for workload in found:
            done += 1
            at = workload.model_copy(update={"params": {**workload.params, name: value}})
            say(f"{done} of {len(values) * len(found)}: {words_of(at)} {name}={value}")
            try:
                one, folder = _measured(at, args, say)
            except Interrupted:
                raise
            except KernelwrightError as error:
                if error.code == "unknown_parameter":  # so it would be at every other point
                    raise
                errors.append(error)
                doubts.append(f"{words_of(at)} {name}={value} failed: {error.line()}")
                row.append(None)
                continue
            folders.append(str(folder))
            row.append(one)
            if (doubt := duration_warning(one)) is not None:
                doubts.append(f"{words_of(at)} {name}={value}: {doubt}")
        points.append(Point(value, tuple(row)))
    if len(errors) == done:
        raise errors[0]
    sweep = Sweep(name, tuple(words_of(workload) for workload in found), tuple(points))
    kernel = ", ".join(dict.fromkeys(workload.name for workload in found))
    place = analysis_folder("sweep", kernel, args.out)
    files = write_sweep_figure(sweep, f"{kernel}: sweep of {name}", place)
    text = render_sweep(sweep, doubts)
    data = {"out_dir": str(place), "parameter": name, "rows": sweep.rows(), "warnings": doubts, "profiles": folders,
            "figures": [str(file) for file in files]}
    return Answer(data, text.rstrip("\n"), tail=f"\nplot: {files[0]}")


def _asked(text: str, found: list[WorkloadRef], params: dict[str, str]) -> tuple[str, list[str]]:
    """(parameter, values) of NAME=V1,V2,..., of NAME alone, or of nothing: then the project file's `sweep:`. Raises BadInput."""
    name, equals, listed = text.partition("=")
    if equals:
        values = list(dict.fromkeys(value.strip() for value in listed.split(",") if value.strip()))
        if not name.strip() or not values:
            raise BadInput("usage", f"{text!r} is no sweep", where="--sweep", fix="e.g. --sweep t=1024,4096,16384")
    else:
        first = found[0]
        kernel = read_project(first.project).kernels.get(first.kernel or "") if first.project is not None else None
        known = dict(kernel.sweep) if kernel is not None else {}
        if name not in known and (name or len(known) != 1):
            raise BadInput("usage", "which values?", where="--sweep", fix="e.g. --sweep t=1024,4096,16384"
                           + (f"; the project file has {', '.join(known)}" if known else ""))
        name = name or next(iter(known))
        values = [str(value) for value in known[name]]
    if name in params:
        raise BadInput("given_twice", f"{name} is swept and given", where=f"--{name}", fix="leave one of the two out")
    return name.strip(), values


def _measured(workload: WorkloadRef, args: argparse.Namespace, say: Say) -> tuple[Profile, Path]:
    """A profile in mode event: with --stored one that is there and was made as this one would be, else a new one."""
    device, clocks = device_of(args, workload), clocks_of(args, workload)
    stored = reusable(workload, "event", present(device, clocks)) if args.stored else None
    if stored is not None:
        return stored
    options = ProfileOptions(device=device, clocks=clocks, python=args.python, timeout_s=args.timeout,
                             command=tuple(sys.argv))
    done = profile(workload, "event", None, options, say=say)
    write_run(done)
    return done.profile, done.out_dir

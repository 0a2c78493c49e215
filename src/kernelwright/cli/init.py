"""init [FOLDER]: write kernelwright.yaml from the workloads and versions that a folder has."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from ..model.errors import BadInput
from ..model.files import write_text_atomic
from ..model.saying import Say
from ..pipeline.discover import discover, left_out
from ..project import PROJECT_FILE, read_project
from ..report.project_file import render_project_file
from .common import Answer, folder, no_params

MOST_NAMED = 8
HELP = "write a project file from the workloads that a folder has"
DESCRIPTION = f"{HELP}: files with VERSIONS, NAME_v1.py and its like, KernelBench problems, other workloads; scripts are left out"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """FOLDER and --force."""
    parser.add_argument("folder", metavar="FOLDER", nargs="?", type=folder, default=Path("."), help="default: the current folder")
    parser.add_argument("--force", action="store_true", help=f"replace a {PROJECT_FILE} that is there")


def run(args: argparse.Namespace, params: dict[str, str], say: Say) -> Answer:
    """Look, write, and read again what was written. Raises BadInput where a file is there already or nothing is found."""
    no_params(params, verb="init")
    place: Path = args.folder.resolve()
    if not place.is_dir():
        raise BadInput("no_such_folder", "is no folder", where=str(place), fix="name the project's folder")
    file = place / PROJECT_FILE
    if os.path.lexists(file) and not args.force:
        raise BadInput("project_exists", "is there already", where=str(file), fix="edit it, or replace it with --force")
    found = discover(place)
    if not found:
        raise BadInput("nothing_found", "holds no workload that kernelwright knows", where=str(place),
                       fix="write one: get_model_and_input() -> (model, input); or Model with get_inputs(); or VERSIONS with get_inputs()")
    write_text_atomic(file, render_project_file(found))
    project = read_project(file)
    say(f"{len(project.kernels)} kernel{'' if len(project.kernels) == 1 else 's'} found")
    others = left_out(place, {file.resolve() for kernel in project.kernels.values() for file in kernel.files})
    if others:
        more = f" and {len(others) - MOST_NAMED} more" if len(others) > MOST_NAMED else ""
        say(f"left out, as no workload or version of one: {', '.join(others[:MOST_NAMED])}{more}")
    kernels = {name: list(kernel.version_names) for name, kernel in project.kernels.items()}
    rows = [f"{name}: {', '.join(versions) or 'one workload'}" for name, versions in kernels.items()]
    return Answer({"project": str(file), "kernels": kernels}, "\n".join(rows), tail=f"\nproject: {file}")

"""The words of profile_kernel and optimize that say what to run: none, one target, several, or all versions of a kernel."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..model.errors import BadInput
from ..model.saying import Say
from ..model.workload import WorkloadRef
from ..pipeline.newest import newest_changed
from ..pipeline.source import exists, is_file
from ..pipeline.stored import profile_roots
from ..pipeline.target import resolve_target, workload_of
from ..project import PROJECT_FILE, Kernel, Meant, Project, find
from ..project.fingerprint import mentions_versions, versions_of_file

TARGETS = "TARGET [VERSION]"


@dataclass(frozen=True)
class Group:
    """A target and the versions that follow it."""

    target: str
    versions: tuple[str, ...] = ()


def groups_of(words: Sequence[str], project: Project | None, start: Path) -> list[Group]:
    """`mla v4 v5 gemm.py` -> (mla: v4, v5), (gemm.py). A word is a version when it follows a file or a kernel and is none itself."""
    groups: list[Group] = []
    takes_versions = False
    for word in words:
        is_target = _is_target(word, project, start)
        if groups and takes_versions and not is_target:
            groups[-1] = Group(groups[-1].target, (*groups[-1].versions, word))
            continue
        # A first word that nothing is known of takes the next one as its version: the error then speaks of both.
        takes_versions = is_target or (not groups and not _is_version(word, project))
        groups.append(Group(word))
    return groups


def _is_target(word: str, project: Project | None, start: Path) -> bool:
    file = start / word
    return is_file(file) or word.endswith(".py") or "/" in word or (project.kernels.get(word) is not None if project else exists(file))


def _is_version(word: str, project: Project | None) -> bool:
    return project is not None and any(word in kernel.version_names for kernel in project.kernels.values())


def workloads(args: argparse.Namespace, params: dict[str, str], say: Say, *, verb: str) -> list[WorkloadRef]:
    """The workloads that args.targets (and args.all) mean. Raises BadInput with the choices where that can't be told."""
    start = Path.cwd().resolve()
    script_args = getattr(args, "script_args", None)
    groups = groups_of(args.targets, find(start) if args.all or len(args.targets) != 1 else None, start)
    if args.all:
        return _all_versions(groups, args, params, start)
    if not groups:
        return [_newest(args, params, start, say, verb)]
    return [resolve_target(group.target, version, params, args.model_name, start=start, script_args=script_args)
            for group in groups for version in group.versions or (None,)]


def _newest(args: argparse.Namespace, params: dict[str, str], start: Path, say: Say, verb: str) -> WorkloadRef:
    project = find(start)
    if project is None:
        raise BadInput("usage", f"TARGET is missing, and there is no {PROJECT_FILE} here or above that could tell", where=verb,
                       fix="name a workload file (one whose name begins with a dash is written ./-NAME.py), or write a project file: init")
    chosen, why = newest_changed(project, profile_roots(project.folder))
    say(f"{chosen.meant.words}: {why}")
    return workload_of(project, chosen.meant, params, args.model_name)


def _all_versions(groups: Sequence[Group], args: argparse.Namespace, params: dict[str, str], start: Path) -> list[WorkloadRef]:
    if any(group.versions for group in groups):
        raise BadInput("usage", "--all takes every version, and one is named", where="--all", fix="leave one of the two out")
    folder = next((group.target for group in groups if (start / group.target).is_dir()), None)
    if folder is not None:
        raise BadInput("usage", "--all takes the versions of kernels, and this is a folder", where=folder,
                       fix="name kernels or their files, or leave --all out")
    project = find(start)
    if not groups:
        if project is None:
            raise BadInput("usage", "which kernel's versions?", where="--all", fix="name the kernel or its file")
        if len(project.kernels) > 1:
            raise BadInput("which_kernel", "the project has more than one kernel", where="--all",
                           fix=f"name one or more of: {', '.join(sorted(project.kernels))}")
        groups = [Group(next(iter(project.kernels)))]
    return [workload for group in groups for workload in _versions_of(group.target, project, args, params, start)]


def _versions_of(target: str, project: Project | None, args: argparse.Namespace, params: dict[str, str], start: Path) -> list[WorkloadRef]:
    if project is not None and target in project.kernels and not is_file(start / target):
        kernel = project.kernels[target]
        return [workload_of(project, Meant(kernel, name), params, args.model_name) for name in _names(kernel.file, kernel, target)]
    found = resolve_target(target, None, params, args.model_name, start=start)
    listed = find(found.project.parent) if found.project is not None else None
    own = listed.kernels.get(found.kernel or "") if listed is not None else None
    return [resolve_target(target, name, params, args.model_name, start=start) for name in _names(found.path, own, target)]


def _names(file: Path | None, kernel: Kernel | None, target: str) -> Sequence[str]:
    names = kernel.version_names if kernel is not None and kernel.versions else versions_of_file(file) if file is not None else ()
    if not names and (file is None or not mentions_versions(file)):
        raise BadInput("no_versions", "has no versions", where=target, fix="leave --all out")
    if not names:
        raise BadInput("no_versions", "its versions can't be told without running it: VERSIONS is no literal dict", where=target,
                       fix=f"list them in {PROJECT_FILE}: `versions: [v1, v2]`")
    return names

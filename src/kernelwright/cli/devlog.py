"""devlog add PROFILE_DIR [--issue T] [--insight T], devlog show [KERNEL|FILE], devlog accept [KERNEL] VERSION: a kernel's append-only
development log, and which of its versions the next ones stand against."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from ..devlog import DevlogFiles, add_entry, default_log, log_for, read_log, render_entry, show
from ..model.errors import BadInput
from ..model.profile import Profile
from ..model.saying import Say
from ..pipeline.stored import newest_stored, read_params
from ..pipeline.target import resolve_target, workload_of
from ..project import PROJECT_FILE, accept, find, kernel_and_version
from .common import Answer, no_params

HELP = "append to or show a kernel's development log"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`add` and `show`."""
    actions = parser.add_subparsers(dest="action", metavar="add|show|accept", required=True)
    words = "append the entry of one profile"
    add = actions.add_parser("add", help=words, description=words, allow_abbrev=False)
    add.add_argument("profile", metavar="PROFILE_DIR", type=Path, help="a profile's folder or profile.json")
    add.add_argument("--issue", action="append", default=[], metavar="TEXT",
                     help="what remains wrong; repeatable (default: the rules' findings)")
    add.add_argument("--insight", action="append", default=[], metavar="TEXT", help="what was learnt; repeatable")
    shown = actions.add_parser("show", help="print a log", description="print a log as Markdown", allow_abbrev=False)
    shown.add_argument("log_name", metavar="KERNEL|FILE", nargs="?", help="default: the only log there is")
    words = "write into the project file which version is accepted (`baseline: accepted` compares with it)"
    accepted = actions.add_parser("accept", help=words, description=words, allow_abbrev=False)
    accepted.add_argument("words", metavar="[KERNEL] VERSION", nargs="+",
                          help="a version, with its kernel where several have one of that name")
    accepted.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print exactly one JSON object on stdout")
    for action in (add, shown):
        action.add_argument("--log", type=Path, metavar="FILE",
                            help="the log's .md file (default: the project file's, else out/devlog/KERNEL.devlog.md)")
        action.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print exactly one JSON object on stdout")


def run(args: argparse.Namespace, params: dict[str, str], say: Say) -> Answer:
    """Append, show or accept."""
    no_params(params, verb="devlog")
    if args.action == "accept":
        return _accept(args, say)
    return _add(args, say) if args.action == "add" else _show(args, say)


def _add(args: argparse.Namespace, say: Say) -> Answer:
    for option, notes in (("--issue", args.issue), ("--insight", args.insight)):
        if any(not note.strip() for note in notes):
            raise BadInput("empty_note", "is empty", where=option, fix="say something, or leave the option out")
    profile = Profile.load(args.profile)
    folder = args.profile if args.profile.is_dir() else args.profile.parent
    log = args.log or _log_of(folder, profile.capture_metadata.model_name)
    entry = add_entry(profile, log, issues=args.issue, insights=args.insight, check_notes=True,
                      extra={"profile": os.path.relpath(folder.resolve(), log.resolve().parent), **_commit(folder)})
    files = DevlogFiles.of(log)
    entries, notes = read_log(files.jsonl)
    again = sum(other.run == entry.run for other in entries) - 1
    if again > 0:
        say(f"note: the log had {again} {'entry' if again == 1 else 'entries'} of this profile already")
    for note in notes:
        say(f"warning: {note}")
    text = render_entry(entry).rstrip("\n")
    chart = {"chart": str(files.chart)} if files.chart.is_file() else {}
    data = {"devlog": str(files.markdown), "jsonl": str(files.jsonl), **chart, "out_dir": str(folder.resolve()), "markdown": text,
            "notes": notes, "entry": entry.model_dump(mode="json")}
    return Answer(data, text, tail=f"\ndevlog: {files.markdown}")


def _accept(args: argparse.Namespace, say: Say) -> Answer:
    project = find(Path.cwd().resolve())
    if project is None:
        raise BadInput("no_project", f"there is no {PROJECT_FILE} here or above", where="devlog accept", fix="write one: init")
    if len(args.words) > 2:
        raise BadInput("usage", f"{len(args.words)} words are given", where="devlog accept", fix="devlog accept [KERNEL] VERSION")
    if len(args.words) == 1 and args.words[0] in project.kernels:
        kernel = project.kernels[args.words[0]]
        raise BadInput("usage", f"which version of {kernel.name}?", where="devlog accept",
                       fix=f"name one of: {', '.join(kernel.version_names) or 'none: it has no versions'}")
    meant = kernel_and_version(project, args.words[0], args.words[1] if len(args.words) == 2 else None)
    assert meant.version is not None  # a version was named
    before = accept(project.file, meant.kernel.name, meant.version)
    workload = workload_of(project, meant)
    if newest_stored(workload, "event") is None and newest_stored(workload, "annotation") is None:
        say(f"{meant.words} has no profile of its present text yet: profile it, so that later versions have something to stand against")
    data = {"project": str(project.file), "kernel": meant.kernel.name, "accepted": meant.version, "before": before}
    return Answer(data, f"{meant.kernel.name}: {meant.version} is accepted" + (f" (before: {before})" if before else ""),
                  tail=f"\nproject: {project.file}")


def _commit(folder: Path) -> dict[str, str]:
    """The commit that was checked out when the profile was made, where it was made in a git repository."""
    try:
        commit = read_params(folder).get("commit")
    except (BadInput, AttributeError):
        return {}
    return {"commit": commit} if isinstance(commit, str) else {}


def _log_of(folder: Path, kernel: str) -> Path:
    """The log that the project file names for the workload of a stored profile, else the default one."""
    try:
        workload = str(read_params(folder)["workload"])
    except (BadInput, KeyError, TypeError):
        workload = ""
    if workload and Path(workload).is_file():
        # The workload's own project, else the one here where it names that file.
        own, here = find(Path(workload).parent), find(Path.cwd().resolve())
        if own is not None and kernel in own.kernels:
            return own.kernels[kernel].devlog or default_log(kernel, Path.cwd() / "out")
        if here is not None and kernel in here.kernels and Path(workload) in here.kernels[kernel].files:
            return here.kernels[kernel].devlog or default_log(kernel, Path.cwd() / "out")
        ref = resolve_target(workload, None, {}, None)
        return log_for(ref.model_copy(update={"name": kernel}), Path.cwd() / "out")
    return default_log(kernel, Path.cwd() / "out")


def _show(args: argparse.Namespace, say: Say) -> Answer:
    files = DevlogFiles.of(args.log or _named_log(args.log_name, Path.cwd() / "out"))
    text = show(files.markdown)
    entries, notes = read_log(files.jsonl)
    for note in notes:
        say(f"warning: {note}")
    data = {"devlog": str(files.markdown), "jsonl": str(files.jsonl), "markdown": text, "notes": notes,
            "entries": [entry.model_dump(mode="json") for entry in entries]}
    return Answer(data, text.rstrip("\n"))


def _named_log(named: str | None, out: Path) -> Path:
    """A log by its file, by its kernel, or the only one there is. Raises BadInput with the choices."""
    if named is not None:
        path = Path(named)
        if path.suffix in (".md", ".jsonl") or path.is_file():
            return path
        return _project_logs().get(named) or default_log(named, out)
    logs = sorted({log for log in _project_logs().values() if log.with_suffix(".jsonl").is_file()} | set((out / "devlog").glob("*.jsonl")))
    if len(logs) == 1:
        return logs[0]
    if logs:
        raise BadInput("which_log", "there is more than one log", where="devlog show", fix=f"name one of: {', '.join(map(str, logs))}")
    raise BadInput("no_log", f"there is no development log under {out / 'devlog'}", where="devlog show",
                   fix="`devlog add PROFILE_DIR` starts one")


def _project_logs() -> dict[str, Path]:
    """kernel -> its log, of the project file here or above."""
    project = find(Path.cwd().resolve())
    kernels = project.kernels if project is not None else {}
    return {name: kernel.devlog for name, kernel in kernels.items() if kernel.devlog is not None}

"""When files were last changed, by git where it knows them (a checkout gives all files one time), else by the file system."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

LIMIT_S = 10.0
_GIT = ["git", "-c", "core.fsmonitor=false", "-c", "core.quotePath=false"]


def changed_at(files: Sequence[Path], folder: Path) -> dict[Path, float]:
    """File -> Unix time of its last change: of its last commit where it is as committed, else of its last write. Missing files: 0."""
    dirty = _git(folder, "status", "--porcelain=v1", "-z", "--no-renames", "--ignored", "--untracked-files=all", "--", *map(str, files))
    found: dict[Path, float] = {}
    top = _git(folder, "rev-parse", "--show-toplevel") if dirty is not None else None
    uncommitted = {os.path.realpath(os.path.join((top or "").strip(), entry[3:])) for entry in (dirty or "").split("\0") if len(entry) > 3}
    for file in files:
        if top is not None and os.path.realpath(file) not in uncommitted:
            committed = (_git(folder, "log", "-1", "--format=%ct", "--", str(file)) or "").strip()
            if committed.isdigit():
                found[file] = float(committed)
                continue
        try:
            found[file] = file.stat().st_mtime
        except OSError:
            found[file] = 0.0
    return found


def commit_of(folder: Path, files: Sequence[Path] = ()) -> str | None:
    """The commit that is checked out, with "+changes" where tracked files differ from it or one of `files`, of those that lie in the work
    tree, is not tracked; None outside of git."""
    commit = (_git(folder, "rev-parse", "--short=12", "HEAD") or "").strip()
    if not commit:
        return None
    top = (_git(folder, "rev-parse", "--show-toplevel") or "").strip()
    inside = [file for file in map(Path, map(os.path.realpath, files)) if top and file.is_relative_to(os.path.realpath(top))]
    untracked = any(_git(folder, "ls-files", "--", str(file)) == "" for file in inside)
    return commit + ("+changes" if untracked or _git(folder, "status", "--porcelain=v1", "--untracked-files=no") else "")


def _git(folder: Path, *words: str) -> str | None:
    """What git says; None where there is no git, no repository, or no answer in time."""
    try:
        done = subprocess.run([*_GIT, *words], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT_S, check=False,
                              env={**os.environ, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"})
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else None

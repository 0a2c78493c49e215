"""Which version somebody means who names none: the one that changed last since it was profiled."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ..model.errors import BadInput
from ..project import Kernel, Meant, Project, Version
from ..project.fingerprint import versions_of_file
from ..project.git import changed_at
from .stored import present_text, safe_name

MAX_PARAMS_BYTES = 1_000_000


@dataclass(frozen=True)
class Changed:
    """One version, and how it stands to its newest stored profile."""

    meant: Meant
    state: Literal["new", "edited", "same"]
    """new: never profiled; edited: its text differs from that of its newest profile; same: it does not."""
    changed_at: float
    """Unix time of the last change of its file."""
    place: int
    """Its place among the kernel's versions, oldest first."""


def newest_changed(project: Project, roots: Sequence[Path]) -> tuple[Changed, str]:
    """(the version, why) whose file changed last among those that were edited since their newest profile or never profiled; where none
    was, the one that changed last. roots: folders with stored profiles (out/profiles).

    Raises BadInput which_version with the choices where the newest change could be more than one version's.
    """
    rows = [row for kernel in project.kernels.values() for row in _rows(project, kernel, roots)]
    candidates = [row for row in rows if row.state != "same"] or rows
    latest = max(row.changed_at for row in candidates)
    newest = [row for row in candidates if row.changed_at == latest]
    if len({row.meant.kernel.name for row in newest}) > 1 or len({row.state for row in newest}) > 1:
        words = {"new": "never profiled", "edited": "edited", "same": "unchanged"}
        raise BadInput("which_version", "more than one version changed last", where=str(project.file),
                       fix=f"name one of: {', '.join(f'{row.meant.words} ({words[row.state]})' for row in newest)}")
    chosen = max(newest, key=lambda row: row.place)
    why = {"new": "the newest version that was never profiled", "edited": "edited since its newest profile",
           "same": "no version changed since its newest profile, and this one changed last"}[chosen.state]
    return chosen, why


def _rows(project: Project, kernel: Kernel, roots: Sequence[Path]) -> list[Changed]:
    stored = _newest_profiles(kernel.name, roots)
    listed = kernel.versions or tuple(Version(name=name) for name in (versions_of_file(kernel.file) if kernel.file is not None else ()))
    files = [version.file(kernel) for version in listed] if listed else [kernel.file] if kernel.file is not None else []
    times = changed_at(list(dict.fromkeys(files)), project.folder)
    rows = []
    for place, file in enumerate(files):
        version = listed[place] if listed else None
        name = version.name if version is not None else None
        # Without a list that can be read off the file every version has the text of the whole file.
        params = stored.get(name) if listed else next(reversed(stored.values()), None)
        hashed = present_text(project, kernel, name)
        state: Literal["new", "edited", "same"] = "new" if params is None else "same" if _is_same(params, hashed, times[file]) else "edited"
        rows.append(Changed(Meant(kernel, name), state, times[file], place))
    return rows


def _is_same(params: dict[str, Any], hashed: str | None, changed: float) -> bool:
    """By the hash of its text; by time where the profile is older than that."""
    known = params.get("source_sha256")
    if isinstance(known, str) and hashed is not None:
        return known == hashed
    at = params.get("analysed_at_unix_s")
    return isinstance(at, (int, float)) and changed <= at


def _newest_profiles(kernel: str, roots: Sequence[Path]) -> dict[str | None, dict[str, Any]]:
    """version -> params.json of its newest stored profile, in any mode; the newest last."""
    files = [file for root in dict.fromkeys(roots) for file in root.glob(f"*/{safe_name(kernel)}/*/*/params.json")]
    found: dict[str | None, dict[str, Any]] = {}
    for file in sorted(files, key=lambda one: one.parent.name):
        try:
            params = json.loads(file.read_text(encoding="utf-8")) if file.stat().st_size <= MAX_PARAMS_BYTES else None
        except (OSError, ValueError, RecursionError):
            continue
        if isinstance(params, dict) and params.get("kernel") == kernel:
            version = params.get("version")
            name = version if isinstance(version, str) else None
            found.pop(name, None)
            found[name] = params
    return found

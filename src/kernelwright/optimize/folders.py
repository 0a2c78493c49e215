"""Folders of optimisations: which one, who works in it, and what an earlier run reported there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from ..model.errors import BadInput, NotWritable
from ..model.files import remove_partial
from ..model.workload import WorkloadRef
from ..pipeline.stored import safe_name
from . import state as states
from .stages import OptimizeOptions

ANEW = "start anew without --resume"


def folder_of(workload: WorkloadRef, options: OptimizeOptions, out_dir: Path | None) -> Path:
    """The folder of this optimisation; with resume an existing one, else made here. Raises BadInput."""
    parent = Path.cwd() / "out" / "optimize" / safe_name(workload.name)
    if options.resume:
        return states.named_run(out_dir) if out_dir is not None else states.latest_run(parent)
    folder = out_dir or parent / datetime.now(timezone.utc).strftime("%Y%m%d-%H%M%S-%f")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise NotWritable(error, folder) from error
    if (folder / states.STATE_FILE).exists():
        raise BadInput("folder_in_use", "holds an optimisation already", where=str(folder),
                       fix="add --resume to go on with it, or name another folder")
    return folder.resolve()


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """One optimisation a folder: two would mix their ledgers. The lock's file stays: removing it would let a third one in beside a
    second that holds the removed file."""
    lock = FileLock(folder / ".lock")
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        raise BadInput("already_running", "another optimisation works in this folder", where=str(folder),
                       fix=f"wait for it, or {ANEW}") from error
    try:
        remove_partial(folder)
        yield
    finally:
        lock.release()


def earlier_report(folder: Path) -> dict[str, Any] | None:
    """report.json of the run that is resumed; None where there is none, or none that can be read."""
    try:
        document = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return document if isinstance(document, dict) else None

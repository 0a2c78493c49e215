"""Writes tiling/ and compiled/ of one profile: by stage, each file whole or not at all; nothing when nothing was compiled."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..model.capture import ProbeResult
from ..model.errors import BadInput
from ..model.files import write_bytes_atomic, write_json_atomic, write_text_atomic
from ..model.profile import Profile
from .compiled import MAX_CODE_BYTES, CodeFile, StageArtifacts, has_tuning, plan, read_index

PLACED = "placed.json"
"""In raw/compiled/: what a run wrote, so that the next one into the same folder takes away no more than that."""
_OURS = re.compile(r"^(?:tiling|compiled)/[^/\x00]{1,255}(?:/[^/\x00]{1,255})?$")


def write_artifacts(folder: Path, result: ProbeResult, profile: Profile, whole: str) -> None:
    """Write what the profile's compiled_kernels name, below `folder`. whole: folder name where there is no timeline.

    Raises BadInput when it can't be written.
    """
    raw = folder / "raw"
    index, _warnings = read_index(raw, result.compiled_file)
    try:
        _remove_earlier(folder)
        if index is None:
            return
        stages = plan(index, raw, profile.operators, profile.unattributed_kernels, None if profile.timeline else whole)
        placed = [path for stage in stages for path in _write_stage(folder, stage)]
        if placed:
            write_json_atomic(raw / "compiled" / PLACED, placed)
    except OSError as error:
        raise BadInput("output_not_writable", f"can't write there: {error.strerror or error}", where=str(folder),
                       fix="name a writable folder with --out DIR") from error


def _write_stage(folder: Path, stage: StageArtifacts) -> list[str]:
    placed = [file.path for file in stage.files if _write_code(folder, file)]
    head = {"stage": stage.name, "evidence": "compiler"}
    written = f"tiling/{stage.folder}.json"
    write_json_atomic(folder / written, {**head, "kernels": _tiling(stage), "files": placed})
    placed.append(written)
    if has_tuning(stage):
        written = f"tiling/{stage.folder}/autotuning.json"
        write_json_atomic(folder / written, {**head, "evidence": "autotuner", "kernels": _tunings(stage), "choices": _choices(stage)})
        placed.append(written)
    return placed


def _write_code(folder: Path, file: CodeFile) -> bool:
    """False when the raw file is gone or is not what the probe wrote."""
    target = folder / file.path
    if file.text is not None:
        write_text_atomic(target, file.text)
        return True
    source = folder / "raw" / "compiled" / str(file.raw)
    if source.is_symlink() or not source.is_file() or source.stat().st_size > MAX_CODE_BYTES:
        return False
    write_bytes_atomic(target, source.read_bytes())
    return True


def _tiling(stage: StageArtifacts) -> list[dict[str, Any]]:
    fields = {"kernel_name", "python_name", "source", "origin", "config", "num_warps", "num_stages", "registers", "spills", "shared_bytes",
              "configs_tried", "tuned_for", "fused_nodes", "artifacts"}
    return [row.model_dump(mode="json", include=fields) for _, row in [*stage.kernels, *stage.choices]]


def _tunings(stage: StageArtifacts) -> list[dict[str, Any]]:
    entries = {id(entry): entry for entry, _ in stage.kernels if entry is not None and entry.tunings}
    return [{"kernel_name": entry.name, "python_name": entry.python_name, "source": entry.source, "configs_tried": entry.configs_tried,
             "tunings": [tuning.model_dump(mode="json") for tuning in entry.tunings]} for entry in entries.values()]


def _choices(stage: StageArtifacts) -> list[dict[str, Any]]:
    return [choice.model_dump(mode="json") for choice, _ in stage.choices]


def _remove_earlier(folder: Path) -> None:
    """Files of an earlier run into the same folder, and the folders that this empties."""
    file = folder / "raw" / "compiled" / PLACED
    for path in _earlier(file):
        target = folder / path
        target.unlink(missing_ok=True)
        for parent in (target.parent, target.parent.parent):
            if parent != folder and folder in parent.parents:
                with contextlib.suppress(OSError):
                    os.rmdir(parent)
    file.unlink(missing_ok=True)


def _earlier(file: Path) -> Sequence[str]:
    try:
        listed = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return []
    return [path for path in listed if isinstance(path, str) and _OURS.match(path) and ".." not in path.split("/")] \
        if isinstance(listed, list) else []

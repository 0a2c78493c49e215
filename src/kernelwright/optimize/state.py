"""state.json: what an optimisation was started with, so that --resume goes on with the same thing or not at all."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path

from pydantic import Field, ValidationError

from ..judge.session import sha256_of
from ..judge.sources import collect
from ..model.base import Record
from ..model.errors import BadInput
from ..model.files import write_text_atomic
from ..model.workload import Precision, WorkloadRef

STATE_FILE = "state.json"
CODE = (".py", ".cu", ".cuh", ".cpp", ".cc", ".c", ".h", ".hpp")
"""How files of code end: others that a workload names it may write itself."""
MOST_NAMED = 3
"""Files that are named where several changed."""


class State(Record):
    """`state.json`, written once the baseline is there."""

    workload: str
    workload_sha256: str
    files: dict[str, str] = Field(default_factory=dict)
    """The workload's other files of code, those that its imports and names lead to -> digest. Empty where they are too many to tell, and
    in what was written before they were noted."""
    version: str | None
    params: dict[str, str]
    precision: Precision
    device: str
    """"cuda" or "cpu"."""
    device_name: str
    torch_version: str
    seed: int
    budget_s: float
    started_utc: str
    baseline_s: float = 0.0
    """Seconds of the budget that were used by then: the baseline's profile. 0 in what was written before this was noted."""
    options: dict[str, str] = Field(default_factory=dict)
    winners: tuple[tuple[str, ...], ...] = ()
    """Warm start: passes that had won for this workload on this machine when the run began, and what the first was screened to gain."""
    won: float | None = None
    searched_s: float = 0.0
    """The budget of the search that found them, with the passes that there are now (memory.Lesson); else 0."""
    costs: dict[str, float] = Field(default_factory=dict)
    """Seconds that a judgement and a screen of each kind took in earlier optimisations on this machine (medians)."""
    priors: dict[str, float] = Field(default_factory=dict)
    """Warm start: dimension -> mean reward in similar workloads, 0..1."""


def digest_of(workload: Path) -> str:
    """Hex digest of the workload's file. Raises BadInput when it can't be read."""
    digest = sha256_of(workload)
    if not digest:
        raise BadInput("no_such_workload", "can't be read", where=str(workload), fix="make the file readable")
    return digest


def files_of(workload: WorkloadRef) -> dict[str, str]:
    """State.files, as they are now; empty where they can't be read or are too many (judge/sources.py)."""
    try:
        found = collect(workload, workload.path)
    except BadInput:
        return {}
    return {name: hashlib.sha256(data).hexdigest() for name, data in found.files.items()
            if name != found.workload and name.endswith(CODE)}


def save(folder: Path, state: State) -> None:
    """Write state.json. Raises OSError."""
    write_text_atomic(folder / STATE_FILE, state.model_dump_json(indent=1) + "\n")


def load(folder: Path) -> State:
    """Read state.json. Raises BadInput."""
    try:
        return State.model_validate_json((folder / STATE_FILE).read_bytes())
    except OSError as error:
        raise BadInput("nothing_to_resume", "has no state.json", where=str(folder), fix="start anew without --resume") from error
    except ValidationError as error:
        raise BadInput("broken_state", "is not a state.json of this version", where=str(folder / STATE_FILE),
                       fix="start anew without --resume") from error


def named_run(folder: Path) -> Path:
    """The run in this very folder. Raises BadInput when there is none; creates nothing."""
    if not (folder / STATE_FILE).is_file():
        raise BadInput("nothing_to_resume", "holds no optimisation to resume", where=str(folder),
                       fix="check --out, or start without --resume")
    return folder.resolve()


def latest_run(parent: Path) -> Path:
    """The newest run under out/optimize/<workload>/ that got past its baseline. Raises BadInput when there is none."""
    runs = sorted((run for run in parent.iterdir() if (run / STATE_FILE).is_file()), reverse=True) if parent.is_dir() else []
    if not runs:
        raise BadInput("nothing_to_resume", "there is no optimisation to resume", where=str(parent), fix="start one without --resume")
    return runs[0]


def check_same(state: State, workload: WorkloadRef, now: Mapping[str, str]) -> None:
    """Refuse to go on when what decides the figures has changed. `now`: precision, device, torch. Raises BadInput (one line)."""
    pairs = {
        "workload": (f"{state.workload} ({state.workload_sha256[:12]})", f"{workload.path} ({digest_of(workload.path)[:12]})"),
        "version": (str(state.version), str(workload.version)), "parameters": (_words(state.params), _words(workload.params)),
        "precision": (state.precision, now["precision"]), "device": (state.device, now["device"]),
        "torch": (state.torch_version, now["torch"]),
    }
    changed = [f"{what} was {then}, is {current}" for what, (then, current) in pairs.items() if then != current]
    if state.files and not changed:
        files = files_of(workload)
        other = sorted(name for name, digest in state.files.items() if digest != files.get(name))
        changed = [f"{', '.join(other[:MOST_NAMED])}{' and more' if len(other) > MOST_NAMED else ''} changed"] if other else []
    if changed:
        raise BadInput("resume_mismatch", f"the earlier run can't go on: {'; '.join(changed)}", where="--resume",
                       fix="start anew without --resume, or name the folder of another run with --out")


def utc_now() -> str:
    """This moment, ISO 8601, UTC."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def _words(params: Mapping[str, str]) -> str:
    return " ".join(f"{name}={value}" for name, value in sorted(params.items())) or "none"

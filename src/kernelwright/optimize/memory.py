"""What trials have taught: of this run (from its ledger's rows) and of earlier workloads on this machine (a file in the cache folder).

The file holds one line a finished optimisation: what the workload was (a hash, its operators' shares of time), what won, and what each
trial gained. The same workload starts with what won; a similar one (cosine of the operators' shares) has its dimensions ordered by what
paid there. Nothing is believed: every figure of a report is measured anew.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from filelock import FileLock, Timeout
from pydantic import Field, ValidationError

from .. import __version__
from ..capture.cache import cache_dir
from ..model.base import Record
from ..model.files import write_bytes_atomic
from ..model.profile import Profile
from ..model.verdict import ACCEPTABLE, Experiment
from ..model.workload import Precision
from .bandit import Play

KEPT_LINES = 200
MAX_BYTES = 8 * 2**20
SIMILAR = 0.8
"""Cosine of two workloads' shares from which the one's trials order the other's."""
LOCK_S = 5.0
MIN_LOG_GAIN = math.log(1.01)
"""Below 1% a screen's gain is no gain."""
ALL_S = 1e9
"""Of a search that left nothing to try: no budget is longer."""


_NO_GAIN = ("SAME", "SLOWER")


class Trial(Record):
    """One candidate, in short."""

    passes: tuple[str, ...]
    dimension: str
    log_gain: float
    """Over its parent."""
    seconds: float


class Lesson(Record):
    """One optimisation: a line of the file."""

    workload: str
    """See identity."""
    precision: Precision
    shares: dict[str, float]
    """Operator -> share of the measured time, 0..1."""
    winners: tuple[tuple[str, ...], ...] = ()
    """Passes of what was best at each precision and kept; the best first."""
    speedup: float | None = None
    costs: dict[str, float] = Field(default_factory=dict)
    """What it took here, in seconds: a judgement (budget.JUDGEMENT), a screen of each kind."""
    catalogue: str = ""
    """Hash of the passes there were (catalogue_of)."""
    searched_s: float = 0.0
    """The budget of the search that found the winners; ALL_S where it left nothing to try."""
    trials: tuple[Trial, ...] = Field(default=(), max_length=1000)


def speedup_of(row: Experiment) -> float | None:
    """What is known of a candidate's speed-up over the original: the judge's where it has spoken, else the screen's; None: nothing, or
    nothing that counts."""
    if row.verdict is not None:
        return row.verdict.speedup if row.verdict.verdict in ACCEPTABLE else None
    return row.screen.speedup if row.screen is not None and row.screen.status in ("timed", "hopeless") else None


def screened_speedup(row: Experiment, own_figure: float | None = None) -> float | None:
    """The screen's figure where there is one, since rows are compared by figures of one kind; no more than the judge's where that saw no
    gain. own_figure: what counts in the place of the screen's speed-up, where that is known better (view.levelled_speedup)."""
    if row.verdict is not None and row.verdict.verdict not in ACCEPTABLE:
        return None
    found = own_figure or (row.screen.speedup if row.screen is not None and row.screen.status in ("timed", "hopeless") else None)
    if found is not None and row.verdict is not None and row.verdict.verdict in _NO_GAIN and row.verdict.speedup is not None:
        return min(found, row.verdict.speedup)
    return found if found is not None else speedup_of(row)


def trials_of(rows: Sequence[Experiment], speed_of: Callable[[Experiment], float | None] = screened_speedup) -> list[Trial]:
    """The trials of a run. A candidate's gain is over its first parent, over the original where it has none. speed_of: a row's."""
    speed = {row.name: speed_of(row) for row in rows}
    trials = []
    for row in rows:
        if row.screen is None or row.screen.status in ("out_of_budget", "not_applicable"):
            continue
        own, parent = speed[row.name], speed.get(row.parents[0]) if row.parents else 1.0
        gain = math.log(own / parent) if own and parent else 0.0
        trials.append(Trial(passes=row.passes, dimension=row.dimension, log_gain=gain, seconds=row.screen.own_s))
    return trials


def plays_of(trials: Iterable[Trial]) -> list[Play]:
    """As the bandit wants them; those that changed several dimensions at once belong to none."""
    return [Play(trial.dimension, trial.log_gain, trial.seconds) for trial in trials if trial.dimension]


def shares_of(profile: Profile) -> dict[str, float]:
    """Operator -> share of all operators' time."""
    totals: dict[str, float] = {}
    for operator in profile.operators:
        totals[operator.operator_name] = totals.get(operator.operator_name, 0.0) + operator.aggregated.total_duration_ns
    whole = sum(totals.values())
    return {name: value / whole for name, value in totals.items()} if whole > 0 else {}


def similarity(one: Mapping[str, float], two: Mapping[str, float]) -> float:
    """Cosine of two workloads' shares, 0..1."""
    dot = sum(share * two.get(name, 0.0) for name, share in one.items())
    sizes = math.sqrt(sum(share**2 for share in one.values()) * sum(share**2 for share in two.values()))
    return min(1.0, dot / sizes) if sizes > 0 else 0.0


def winners_for(lessons: Iterable[Lesson], workload: str, allowed: Sequence[Precision]) -> list[tuple[str, ...]]:
    """What won for this very workload, without repetition: first at the lowest precision allowed (the last), then what won latest."""
    own = [lesson for lesson in reversed(list(lessons)) if lesson.workload == workload and lesson.precision in allowed]
    own.sort(key=lambda lesson: lesson.precision != allowed[-1])
    return list(dict.fromkeys(passes for lesson in own for passes in lesson.winners))


def priors_from(lessons: Iterable[Lesson], shares: Mapping[str, float]) -> dict[str, float]:
    """Dimension -> mean reward (0..1, over the largest rate of its own run), weighted by similarity, over similar workloads."""
    sums: dict[str, tuple[float, float]] = {}
    for lesson in lessons:
        weight = similarity(lesson.shares, shares)
        if weight < SIMILAR:
            continue
        plays = plays_of(lesson.trials)
        largest = max((play.rate for play in plays), default=0.0)
        for play in plays:
            total, reward = sums.get(play.dimension, (0.0, 0.0))
            sums[play.dimension] = total + weight, reward + weight * (play.rate / largest if largest > 0 else 0.0)
    return {name: reward / total for name, (total, reward) in sums.items() if total > 0}


def useful(trials: Sequence[Trial], parents: Mapping[tuple[str, ...], tuple[str, ...]]) -> dict[str, float]:
    """Pass -> the largest log gain that a trial which added it alone to its parent has shown; for the rescue pool.

    parents: passes of a trial -> passes of its parent.
    """
    found: dict[str, float] = {}
    for trial in trials:
        added = set(trial.passes) - set(parents.get(trial.passes, ()))
        if len(added) == 1 and trial.log_gain > MIN_LOG_GAIN:
            name = added.pop()
            found[name] = max(found.get(name, 0.0), trial.log_gain)
    return found


def identity(workload_sha256: str, version: str | None, params: Mapping[str, str], files: Mapping[str, str]) -> str:
    """Of a workload: the same file with the same parameters, and the same code in the files that it leads to (state.files_of)."""
    words = json.dumps([workload_sha256, version, sorted(params.items()), sorted(files.items())])
    return hashlib.sha256(words.encode()).hexdigest()[:32]


def catalogue_of(names: Iterable[str]) -> str:
    """Of the passes that a search can try: another version of kernelwright may have better ones of the same names."""
    return hashlib.sha256(json.dumps([__version__, *sorted(names)]).encode()).hexdigest()[:16]


def store_for(device_name: str, torch_version: str) -> Path:
    """The file of this device and torch. Raises RuntimeError where there is no home folder."""
    name = re.sub(r"[^\w.+-]+", "-", f"{device_name}-torch{torch_version}")[:120]
    return cache_dir() / "lessons" / f"{name}.jsonl"


def stores_of(torch_version: str) -> list[Path]:
    """The files of all devices for this torch. Raises RuntimeError where there is no home folder."""
    any_device = store_for("", torch_version)
    return sorted(any_device.parent.glob(f"*{any_device.name}"))


def recall(store: Path) -> list[Lesson]:
    """All lessons, the oldest first; lines that can't be read (another version's, damaged) are left out. Never raises for a bad file."""
    try:
        if store.stat().st_size > MAX_BYTES:
            return []
        lines = store.read_bytes().splitlines()
    except OSError:
        return []
    lessons = []
    for line in lines:
        try:
            lessons.append(Lesson.model_validate_json(line))
        except ValidationError:
            continue
    return lessons


def remember(store: Path, lesson: Lesson) -> None:
    """Add a lesson; the same workload's older ones at the same precision go, and the oldest beyond KEPT_LINES. Raises OSError; does
    nothing while another process holds the file for longer than LOCK_S."""
    store.parent.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(store.with_suffix(".lock"), timeout=LOCK_S):
            kept = [one for one in recall(store) if (one.workload, one.precision) != (lesson.workload, lesson.precision)]
            lines = [one.model_dump_json() for one in [*kept, lesson][-KEPT_LINES:]]
            write_bytes_atomic(store, "".join(f"{line}\n" for line in lines).encode())
    except Timeout:
        return

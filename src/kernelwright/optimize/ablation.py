"""Does every pass of the winner earn its place? Each is dropped in turn and the rest timed against the whole, side by side. Pure parts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..judge.correctness import PRECISION_ORDER
from ..model.trial import Screen
from ..model.verdict import Experiment
from .confirm import OF, ROLE
from .generate import lowest_precision
from .passes import CATALOGUE
from .plan import lower_bound, upper_bound
from .view import STEP

ABLATION, WITHOUT, EARNED = "ablation", "without", "earned"
"""Tags of an ablation's row: its role, the pass that was dropped, and "yes", "no" or "unknown"."""
LEFT_OF = "left of"
"""Tag of a candidate that is what ablation left of another: that one's name. Where it was tried before for a reason of its own, its origin
and parents stay those."""
WORTH = 1.005
"""A pass must earn half a percent: less is below what a screen of two seconds can see."""
CLEAR = 1.1
"""Screens at two moments that differ by a tenth tell that a pass earns something."""
APART = 1.1
"""The judge's figures of one program at two moments are seldom further apart, though their intervals are (docs/predictions.md, Judged
twice)."""
OPENS = frozenset({name for item in CATALOGUE.values() for name in item.partners | item.opened_by} | {
    item.name for item in CATALOGUE.values() if item.carrier or item.frees_capture})
"""Passes that others, or the capture of a graph, need: what earns nothing itself may pay with those."""
NEVER = frozenset({"no_grad", "unwrap_compiled"})
"""Not a rewrite but a condition of the others."""


def is_ablation(row: Experiment) -> bool:
    """Whether a ledger's row is an ablation's."""
    return row.tags.get(ROLE) == ABLATION


def whole_of(row: Experiment) -> str | None:
    """The name of the winner of which ablation left this candidate; None where it is none."""
    return row.tags.get(LEFT_OF) or (row.parents[0] if row.origin == "ablation" and row.parents else None)


def wholes_of(rows: Iterable[Experiment], row: Experiment) -> list[str]:
    """The names of the winner of which ablation left this candidate, of the one that that was left of, and so on."""
    known, found = {one.name: one for one in rows if not is_ablation(one)}, list[str]()
    name = whole_of(row)
    while name is not None and name not in found:
        found.append(name)
        name = whole_of(known[name]) if name in known else None
    return found


def was_told(rows: Iterable[Experiment], name: str, whole: str) -> bool:
    """Whether the ledger says already that ablation left this candidate of that winner. A candidate may be left of several."""
    return any(row.name == name and whole_of(row) == whole and row.verdict is not None for row in rows)


def lowers(row: Experiment, name: str) -> bool:
    """Whether what is left without this pass is of higher precision."""
    return lowest_precision([CATALOGUE[one] for one in row.passes if one != name]) != row.precision


def to_drop(row: Experiment, rows: Sequence[Experiment] = ()) -> list[str]:
    """The passes of a winner that are tried without: first those that lower its precision, then what predicts least (no number: nothing),
    since the time may not do for all. A single one only where what is left, no gradients alone, was as fast or nearly so by the screens
    in `rows` (an LSTM on two CPU cores: `compile_default` was kept, 1.03x, 0.96x of `no_grad`)."""
    gains = {one.name: one.gain[0] * one.gain[1] for one in row.prediction if one.gain is not None}
    own = sorted((name for name in row.passes if name not in NEVER), key=lambda name: (not lowers(row, name), gains.get(name, 1.0)))
    if len(own) == 1 and (by_screens(rows, row, own[0]) is None or is_clear(rows, row, own[0])):
        return []
    return [name for name in own if not CATALOGUE[name].lasts]  # where it lasts, both would be timed under it


def must_weigh(row: Experiment, name: str) -> bool:
    """Whether the look without this pass comes before the judge sees the candidate whatever the screens say: where it lowers precision, and
    where it is all that the candidate has, so that what is left may be judged in its place."""
    return lowers(row, name) or {*row.passes} - NEVER == {name}


def earned(screen: Screen, *, lowers: bool = False) -> str:
    """"yes", "no" or "unknown", from a screen of the whole against the rest: speed-up = time without the pass / time with it.

    "no": less than half a percent, however sure that is: what is left is judged, and gives way to a whole that is clearly faster. "yes"
    needs a lower end above 1. One that lowers precision must earn 1%.
    A rest that is wrong, fails or does not apply shows that the pass is needed.
    """
    if screen.status in ("wrong", "failed", "not_applicable"):
        return "yes"
    if screen.speedup is None or screen.interval is None:
        return "unknown"
    worth = STEP if lowers else WORTH
    if screen.interval[0] > 1.0 and screen.speedup >= worth:
        return "yes"
    return "no" if screen.speedup < worth else "unknown"


def by_screens(rows: Iterable[Experiment], kept: Experiment, name: str) -> tuple[float, float] | None:
    """(speed-up with a pass, without it) over the original, where the search screened both; None where it did not."""
    found = _screens(rows)
    whole, rest = found.get(frozenset(kept.passes)), found.get(frozenset(kept.passes) - {name})
    return (whole, rest) if whole is not None and rest is not None else None


def _screens(rows: Iterable[Experiment]) -> dict[frozenset[str], float]:
    """Passes -> what the search screened them to have."""
    return {frozenset(row.passes): row.screen.speedup for row in rows if row.screen is not None and row.screen.status == "timed"
            and row.screen.speedup is not None and not row.tags.get(ROLE)}


def is_doubted(rows: Iterable[Experiment], kept: Experiment, name: str) -> bool:
    """Whether the screens leave it open that a pass earns something: with it the candidate, or where that was not screened without it any
    with some of its passes, was less than CLEAR times as fast. False where no such two were screened, and where the screen of what is left
    was far behind or refused it."""
    rows = list(rows)
    found, own = _screens(rows), frozenset(kept.passes)
    if any(row.screen is not None and row.screen.status in ("hopeless", "wrong", "failed") and {*row.passes} == own - {name}
           and not row.tags.get(ROLE) for row in rows):
        return False
    pairs = {some: found[some] / found[some - {name}] for some in found if name in some <= own and some - {name} in found}
    return max([pairs[own]] if own in pairs else pairs.values(), default=CLEAR) < CLEAR


def is_clear(rows: Iterable[Experiment], kept: Experiment, name: str) -> bool:
    """Whether the screens tell already that a pass earns something."""
    both = by_screens(rows, kept, name)
    return both is not None and both[0] >= CLEAR * both[1]


def rows_of(rows: Iterable[Experiment], winner: str) -> dict[str, Experiment]:
    """Pass -> its ablation's row, of this winner."""
    return {row.tags[WITHOUT]: row for row in rows if is_ablation(row) and row.tags.get(OF) == winner}


def tried(rows: Sequence[Experiment], row: Experiment) -> dict[str, Experiment]:
    """Pass -> its ablation's row, of this candidate or of what it was left of."""
    names = [*reversed(wholes_of(rows, row)), row.name]
    return {name: one for of in names for name, one in rows_of(rows, of).items()}


def superfluous(found: Mapping[str, Experiment]) -> list[str]:
    """Passes that earn nothing."""
    return [name for name, row in found.items() if row.tags.get(EARNED) == "no"]


def realised(found: Mapping[str, Experiment]) -> dict[str, float]:
    """Pass -> what the winner loses without it, where that was timed."""
    return {name: row.screen.speedup for name, row in found.items() if row.screen is not None and row.screen.speedup is not None}


def slimmed(passes: Sequence[str], dropped: Iterable[str]) -> list[str]:
    """What is left."""
    gone = set(dropped)
    return [name for name in passes if name not in gone]


def slim_first(order: Sequence[Experiment]) -> list[Experiment]:
    """The same order, but a candidate that ablation left of another stands before that where it may take its place."""
    found = list(order)
    for slim in sorted((row for row in order if whole_of(row) is not None), key=lambda row: len(wholes_of(order, row))):
        whole = next((row for row in found if row.name == whole_of(slim)), None)
        if whole is not None and found.index(whole) < found.index(slim) and _may_replace(slim, whole, order):
            found.remove(slim)
            found.insert(found.index(whole), slim)
    return found


def _may_replace(slim: Experiment, whole: Experiment, order: Sequence[Experiment]) -> bool:
    """Whether what ablation left of a whole is kept in its place: where the judge's intervals of the two meet, and where a single pass was
    dropped, which earned nothing in turns, and the judge's two figures are not APART (nor those of what the whole was itself left of),
    unless a candidate of higher precision is as fast."""
    if upper_bound(slim) >= (lower_bound(whole) or 0.0):
        return True
    level, known = PRECISION_ORDER.index(slim.precision), {row.name: row for row in order}
    wholes = [known[name] for name in wholes_of(order, slim) if name in known]
    higher = [row for row in order if PRECISION_ORDER.index(row.precision) < level]
    return len({*whole.passes} - {*slim.passes}) == 1 and not are_apart(slim, wholes) and all(
        upper_bound(row) < (lower_bound(slim) or 0.0) for row in higher)


def are_apart(slim: Experiment, wholes: Iterable[Experiment]) -> bool:
    """Whether the judge's figure of what was left is further behind that of one of these than two moments explain."""
    def said(row: Experiment) -> float:
        return (row.verdict.speedup if row.verdict is not None else None) or 0.0

    return any(APART * said(slim) < said(whole) for whole in wholes)

"""What may be said of the gain: under which condition, at which precision, over which row of the ladder, by which pass. Verdicts, and what
was timed in turns with a row of the ladder (beside.py)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..judge.correctness import PRECISION_ORDER
from ..model.trial import PassPrediction
from ..model.verdict import Comparison, Experiment
from ..model.workload import Precision
from ..report.numbers import us
from . import ablation, beside, shown
from .confirm import counted, refuted, verdicts
from .ending import NA, Ending, Kept, factor, gain, gain_of, own_passes, speedup_of
from .memory import screened_speedup
from .passes import CATALOGUE
from .plan import CASTS, LADDER, ranked

NOTABLE_DRIFT = 1.25
"""A row's medians are explained when their ratio is further than this factor from the estimate over pairs."""
ORIGINAL = "eager (the original)"
NONE = "none faster"
UNCOMPILED = f"{NA} (no compile mode was timed)"
SCREENED, UNDECIDED = " (screened only)", " (undecided)"
CONDITIONS = {
    "warm": "alone: calls one after another, caches warm",
    "cold L2": "alone, caches cold",
    "graph": "in a graph: captured as a CUDA graph, or with its own",
    "end to end": "end to end: inputs from the host, the call, outputs back",
}
"""A judge's condition -> what it is called in a report, in that order."""
UNEARNED = {"no": " (it earned nothing)", "unknown": " (not decided whether it earns anything)"}
"""Ablation's answer -> what stands beside its figure."""
COMPILE_MODES = LADDER[1:]
"""torch.compile's own rows, without no_grad."""
_DECIDED = ("FASTER", "SAME", "SLOWER")


@dataclass(frozen=True)
class BestRow:
    """The best timed row of the ladder, decided or not, at a precision or a higher one."""

    name: str
    """Of the row, and what its figure is worth."""
    speedup: float
    interval: tuple[float, float]
    undecided: int
    """Rows that were timed and too noisy to tell."""
    untimed: tuple[str, ...] = ()
    """torch.compile's rows at that precision of which nothing is known, though they apply: the best of the ladder may be one of them."""
    compiled: bool = True
    """Whether a row of torch.compile was timed at all, at that precision or a higher one."""

    @property
    def row(self) -> str:
        """Of the row alone."""
        return self.name.removesuffix(SCREENED).removesuffix(UNDECIDED)


def conditions(kept: Kept | None) -> list[dict[str, str]]:
    """The gain of what was kept under each condition that the judge timed."""
    timed = {row.condition: row for row in kept.verdict.timings} if kept else {}
    return [{
        "condition": words, "before": us(row.reference_ns), "after": us(row.candidate_ns), "gain": factor(row.speedup, row.interval),
        "note": row.not_applicable or row.note,
    } for name, words in CONDITIONS.items() if (row := timed.get(name)) is not None]


def is_ladder_row(row: Experiment) -> bool:
    """Whether it is one of torch.compile's own rows, or eager, at the workload's flags or with one pass that lowers the precision."""
    own = own_passes(row)
    if row.precision == "equal":
        return row.name in LADDER
    lower = {name for name in own if name in CATALOGUE and CATALOGUE[name].precision != "equal"}
    return len(lower) == 1 and lower <= CASTS and (own - lower) <= set(LADDER) and len(own - lower) <= 1


def ladder(end: Ending) -> list[dict[str, str]]:
    """The original, the ladder at the workload's own flags (rows that were not judged say why), then each lower precision's rows."""
    known = {row.name: row for row in end.rows}
    names = [name for name in LADDER if not (name == "no_grad" and end.needs_gradients)]
    lower = [row for row in end.rows if row.precision != "equal" and is_ladder_row(row)]
    lower.sort(key=lambda row: (PRECISION_ORDER.index(row.precision), len(own_passes(row))))
    start = {"name": ORIGINAL, "precision": "equal", "before": NA, "after": NA, "gain": "1.00x", "note": "what all rows are timed against"}
    untried = {"precision": "equal", "before": NA, "after": NA, "gain": NA, "note": "not tried"}
    equal = [_ladder_row(known[name]) if name in known else {"name": name, **untried} for name in names]
    compared = [_shown_row(name, row) for name, row in shown.rows_of(end.history).items()]
    return [start, *equal, *compared, *map(_ladder_row, lower)]


def _shown_row(name: str, row: Experiment) -> dict[str, str]:
    """A row for comparison: its screen, or why there is none."""
    note = row.reason if row.screen is None or row.screen.speedup is None else "for comparison: screened only, never kept"
    return {**_ladder_row(row), "name": name, "precision": shown.LABELS[name], "note": note}


def _ladder_row(row: Experiment) -> dict[str, str]:
    comparison = row.verdict.comparison if row.verdict else None
    note = row.reason if comparison is None else row.verdict.verdict if row.verdict else ""
    before, after = (comparison.reference.median_ns, comparison.candidate.median_ns) if comparison else (None, None)
    if row.verdict is None and row.screen is not None and row.screen.speedup is not None:
        before, after, note = row.screen.reference_ns, row.screen.candidate_ns, "screened only, not judged"
    return {"name": row.name, "precision": row.precision, "before": us(before), "after": us(after), "gain": gain_of(row),
            "note": note + _drift(comparison)}


def _drift(comparison: Comparison | None) -> str:
    """Why a row's two medians do not give its speed-up, where they are far from it; "" where they are not."""
    if comparison is None:
        return ""
    ratio = comparison.reference.median_ns / comparison.candidate.median_ns
    apart = max(ratio, comparison.speedup) / min(ratio, comparison.speedup)
    if apart <= NOTABLE_DRIFT:
        return ""
    return f"; the medians' ratio is {ratio:.2f}: the machine's speed changed between them, or others interrupted one side's samples"


def best_ladder_row(rows: Sequence[Experiment], level: Precision) -> BestRow:
    """The best row that a user who allows `level` could have had; the original itself (1.00x) where none is faster. A row that was only
    screened, if only until it was clear that it is far behind, counts with the screen's estimate, one that the judge left undecided with
    the judge's: leaving it out could only flatter."""
    allowed = PRECISION_ORDER[: PRECISION_ORDER.index(level) + 1]
    top, undecided, compiled = BestRow(ORIGINAL, 1.0, (1.0, 1.0), 0), 0, False
    for row in rows:
        if row.precision not in allowed or not is_ladder_row(row):
            continue
        undecided += row.verdict is not None and row.verdict.verdict == "AMBIGUOUS"
        found = _timed(row)
        compiled = compiled or (found is not None and not own_passes(row).isdisjoint(COMPILE_MODES))
        if found is not None and found.speedup > top.speedup:
            top = found
    return replace(top, undecided=undecided, untimed=_untimed(rows, level), compiled=compiled)


def _untimed(rows: Sequence[Experiment], level: Precision) -> tuple[str, ...]:
    """Compile modes that apply and that nobody looked at, at this level."""
    known = [row for row in rows if is_ladder_row(row) and row.precision in ("equal", level)]
    off = {name for name in COMPILE_MODES for row in known if name in row.passes and row.status in ("not_applicable", "failed")}
    looked_at = {name for name in COMPILE_MODES for row in known if name in row.passes and row.precision == level and _looked_at(row)}
    return tuple(name for name in COMPILE_MODES if name not in off | looked_at)


def _looked_at(row: Experiment) -> bool:
    """Whether something is known of it: a figure, or that it does not work."""
    return row.verdict is not None or row.status == "failed" or (row.screen is not None and row.screen.status != "out_of_budget")


def _timed(row: Experiment) -> BestRow | None:
    if row.verdict is None:
        screen = row.screen
        if screen is None or screen.status not in ("timed", "hopeless") or screen.speedup is None:
            return None
        return BestRow(row.name + SCREENED, screen.speedup, screen.interval or (screen.speedup, screen.speedup), 0)
    speedup, comparison = row.verdict.speedup, row.verdict.comparison
    if row.verdict.verdict == "AMBIGUOUS" and comparison is not None:
        return BestRow(row.name + UNDECIDED, comparison.speedup, comparison.interval, 0)
    if row.verdict.verdict not in _DECIDED or speedup is None:
        return None
    return BestRow(row.name, speedup, row.verdict.interval or (speedup, speedup), 0)


def over(speedup: float, interval: tuple[float, float] | None, row: BestRow) -> tuple[float, tuple[float, float]]:
    """(speed-up over that row, its interval): both were timed in pairs against the original. The interval takes both ends at their
    worst, so it covers at least as often as each of them."""
    low, high = interval or (speedup, speedup)
    return speedup / row.speedup, (low / row.interval[1], high / row.interval[0])


def _over_words(end: Ending, name: str, speedup: float, interval: tuple[float, float] | None, row: BestRow) -> str:
    """How much faster a candidate is than that row: as the two were timed in turns, where that did not choose it, else by what each is over
    the original."""
    timed = beside.over(end.history, name, row.row)
    return factor(*over(speedup, interval, row)) if timed is None else f"{factor(*timed)} (timed in turns with it)"


def by_precision(end: Ending) -> list[dict[str, str]]:
    """The best FASTER row at equal precision and at each lower one that was allowed, apart; `more` is what the precision gave: the row's
    speed-up over the best equal one's. Where none of these was FASTER, by the screens of both, if one that was not judged is ahead there;
    else over the original."""
    allowed = PRECISION_ORDER[: PRECISION_ORDER.index(end.state.precision) + 1]
    rows = counted(end.rows, end.confirmations)
    order = beside.preferred(ablation.slim_first(ranked(rows)), end.history)
    tops = {level: next((row for row in order if row.precision == level), None) for level in allowed}
    ahead = _ahead_by_its_screen(rows) if tops["equal"] is None else None
    none = f"none judged faster ({ahead.name} {screened_speedup(ahead):.2f}x by its screen)" if ahead is not None else NONE
    return [{**_precision_row(end, level, row), "more": _by_precision_alone(row, tops["equal"], ahead) if level != "equal" else NA,
             "name": row.name if row is not None else none if level == "equal" else NONE} for level, row in tops.items()]


def _ahead_by_its_screen(rows: Sequence[Experiment]) -> Experiment | None:
    """The row at equal precision that was not judged, and is the fastest by its screen; None where none is faster than the original."""
    open_ = [row for row in rows if row.precision == "equal" and row.verdict is None and (screened_speedup(row) or 0.0) > 1.0]
    return max(open_, key=lambda row: screened_speedup(row) or 0.0, default=None)


def _by_precision_alone(row: Experiment | None, equal: Experiment | None, ahead: Experiment | None) -> str:
    """What a row's precision gave, over the best equal row, judged or `ahead`."""
    if row is None:
        return NA
    screened, base = screened_speedup(row), screened_speedup(ahead) if ahead is not None else None
    if base is not None:
        return f"{screened / base:.2f}x (by their screens)" if screened is not None else NA
    own = speedup_of(row)
    return f"{own / (speedup_of(equal) or 1.0):.2f}x" if own is not None else NA


def _precision_row(end: Ending, level: Precision, row: Experiment | None) -> dict[str, str]:
    said = [one.verdict for one in verdicts(end.confirmations).get(row.name, [])] if row else []
    own, rung = speedup_of(row), best_ladder_row(end.rows, level)
    kept = end.kept if row is not None and end.kept is not None and end.kept.row.name == row.name else None
    note = "" if row is None else _sure(kept) if kept is not None else "judged once"
    speedup, interval = kept.least if kept is not None else (own, row.verdict.interval if row and row.verdict else None)
    beyond = NA if speedup is None or row is None else UNCOMPILED if not rung.compiled else "the same" if rung.row == row.name \
        else _over_words(end, row.name, speedup, interval, rung)
    return {
        "precision": level, "gain": gain(row.verdict if row else None),
        "note": note if not said or said[-1] == "FASTER" else f"not confirmed: {', then '.join(said)}",
        "file": row.candidate_file if row else NA, "over": beyond,
        "rung": f"{rung.name} {rung.speedup:.2f}x" + (f" ({rung.undecided} undecided)" if rung.undecided else "")
        + (f" (not timed: {', '.join(rung.untimed)})" if rung.untimed else ""),
    }


def _sure(kept: Kept) -> str:
    """How sure what was kept is, with all that its judgements said."""
    word = "confirmed" if kept.confirmation is not None else "audited" if kept.apart is not None else ""
    return f"{word}: {kept.gain}" if word else "judged once"


def passes(end: Ending) -> list[dict[str, str]]:
    """Each pass of what was kept: why, what it gave alone, what the whole loses without it, what it predicted and whether that was seen."""
    if end.kept is None:
        return []
    alone = {next(iter(own)): row for row in end.rows if len(own := own_passes(row)) == 1}
    alone |= {row.name: row for row in end.rows if row.name == "no_grad"}
    without = {row.tags.get("without", ""): row for row in end.ablation}
    checked = {one.name: one for one in end.hypotheses}
    said = {one.name: one for one in end.kept.row.prediction}
    return [{
        "name": name, "why": CATALOGUE[name].why, "alone": gain_of(alone[name]) if name in alone else "not tried alone",
        "whole": _whole(end, end.kept.row, name, without.get(name)), "predicted": _predicted(said.get(name)),
        "result": checked[name].result if name in checked else "not checked", "words": checked[name].words if name in checked else "",
    } for name in end.kept.row.passes]


def _whole(end: Ending, kept: Experiment, name: str, row: Experiment | None) -> str:
    """What the whole loses without a pass, or why that is not known."""
    if row is not None and row.screen is not None and row.screen.speedup is not None:
        return gain_of(row) + UNEARNED.get(row.tags.get(ablation.EARNED, ""), "")
    if row is not None and (row.screen is None or row.screen.status != "out_of_budget"):
        return f"without it: {row.reason or 'it does not work'}"
    why = "no time"
    if name in ablation.NEVER:
        why = "a condition of the others"
    elif CATALOGUE[name].lasts:
        why = "it holds for the whole process, in which both would be timed"
    elif len(ablation.to_drop(kept, end.rows)) == 0:
        why = "it stands alone"
    elif kept.screen is None:
        why = "nothing was screened"
    elif not end.ablation and refuted(end.confirmations):
        why = "the search had another winner"
    elif end.interrupted:
        why = "the run was interrupted"
    seen = ablation.by_screens(end.rows, kept, name) if name not in ablation.NEVER else None
    return f"not ablated: {why}" + (f"; by the screens {seen[0]:.2f}x with it, {seen[1]:.2f}x without" if seen is not None else "")


def _predicted(said: PassPrediction | None) -> str:
    """The predicted speed-up."""
    if said is None or said.gain is None:
        return "no number" if said is not None else NA
    low, high = said.gain
    return f"{low:.2f}x" if high - low < 0.005 else f"{low:.2f} to {high:.2f}x"


def sentences(end: Ending) -> list[str]:
    """The claims in words, for the development log: the gain of precision apart, and the ladder beside."""
    kept = end.kept
    if kept is None or kept.verdict.speedup is None:
        return []
    rung = best_ladder_row(end.rows, kept.row.precision)
    untimed = f"; not timed: {', '.join(rung.untimed)}" if rung.untimed else ""
    speedup, interval = kept.least
    assert speedup is not None
    if not rung.compiled:
        words = ["No row of the torch.compile ladder was timed, so nothing is said over it."]
    elif rung.row == kept.row.name:
        words = [f"What was kept is the best row of the torch.compile ladder at {kept.row.precision} precision{untimed}."]
    else:
        beyond = _over_words(end, kept.row.name, speedup, interval, rung)
        words = [f"Best {'timed ' if untimed else ''}row of the torch.compile ladder at {kept.row.precision} precision or higher: "
                 f"{rung.name}, {rung.speedup:.2f}x; what was kept is {beyond} over it{untimed}."]
    if kept.row.precision != "equal":
        rows = {row["precision"]: row for row in by_precision(end)}
        words.append(f"At equal precision: {rows['equal']['name']}, {rows['equal']['gain']}; of the gain, lower precision "
                     f"({kept.row.precision}) gave {rows[kept.row.precision]['more']}.")
    return words

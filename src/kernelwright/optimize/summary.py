"""What an optimisation says at its end: the figures of its reports, taken from verdicts and profiles alone."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..judge.clocks import NOT_CONFIRMED
from ..model.errors import MachineLacks
from ..model.files import write_json_atomic, write_text_atomic
from ..model.verdict import Comparison, Experiment
from ..pipeline.peaks import SUSPECT_PEAK_PCT
from ..report.baseline import idle_row
from ..report.figures import headline
from ..report.numbers import amount, two, us
from ..report.templates import render
from . import claims, pictures, remains
from .confirm import LONGER, OF, history, is_confirmation, noisy, refutes, verdicts
from .ending import NA, Ending, Kept, gain, gain_of, not_decided, unjudged
from .ledger import NOT_JUDGED
from .paired import NOTABLE_SPREAD, paired
from .plan import best

OWN_TIMING_APART = 1.1
"""The baseline's own duration is told beside the paired one from this factor between them."""
MOST_SCREENED = 30
"""Candidates that were only screened, in the table of experiments; report.json has all."""


def result_line(end: Ending) -> str:
    """One sentence with the outcome."""
    line = _outcome(end)
    if not end.interrupted:
        return line
    return f"Interrupted: {line.replace('Nothing', 'nothing', 1) if end.kept is None else line}"


def _outcome(end: Ending) -> str:
    where = f"{end.state.device_name}, torch {end.state.torch_version}"
    if end.kept is None:
        if (audit := next((row for row in reversed(end.confirmations) if refutes(row)), None)) is not None:
            return f"Nothing was kept: {_refused(audit)} ({where})."
        tried = sum(row.verdict is not None for row in end.rows)
        if tried == 0:
            return f"Nothing was kept: {_none_judged(end)} ({where})."
        noise = sum(noisy(row) for row in end.rows)
        doubt, plural = _undecided(end.rows), "" if tried == 1 else "s"
        if noise == tried:
            return f"Nothing could be decided: {noise} of {tried} candidate{plural} judged {doubt} ({where})."
        judged = f"{tried} candidate{plural} judged{_unconfirmed(end)}"
        cut = [row.name for row in end.rows if _is_cut(row)]
        open_ = [f"{noise} of them {doubt}"] * (noise > 0) + [f"the judgement of {', '.join(cut)} did not end in time"] * bool(cut)
        if open_:
            return f"Nothing better than the original was proved ({judged}, {', '.join(open_)}; {where})."
        return f"Nothing better than the original was found ({judged}; {where})."
    kept = end.kept
    sure = "confirmed by a second judgement" if kept.confirmation else "judged once, not confirmed again"
    if kept.confirmation and LONGER in kept.confirmation.tags:
        sure = "confirmed by a longer judgement, the first confirmation being AMBIGUOUS"
        if noisy(kept.row):
            sure = "by a longer judgement, the first being AMBIGUOUS"
    if kept.apart is not None:
        sure += f", {'the audit after it smaller and' if kept.is_smaller_in_audit else 'the two'} further apart than their intervals"
    precision = "equal precision" if kept.row.precision == "equal" else f"lower precision ({kept.row.precision})"
    return f"{kept.row.name} is {kept.gain} faster than the original at {precision} ({sure}; {where})."


def _undecided(rows: Sequence[Experiment]) -> str:
    """What made judgements AMBIGUOUS."""
    reasons = [" ".join(row.verdict.reasons) for row in rows if noisy(row) and row.verdict is not None]
    by_clock = sum(NOT_CONFIRMED in reason for reason in reasons)
    return " or ".join(["too noisy to tell"] * (by_clock < len(reasons)) + [NOT_CONFIRMED] * (by_clock > 0))


def _refused(audit: Experiment) -> str:
    """A candidate that was confirmed or judged FASTER, and whose audit took that back."""
    verdict = audit.verdict
    assert verdict is not None
    said = gain(verdict) if verdict.speedup is not None else verdict.reasons[0] if verdict.reasons else "no reason given"
    return f"{audit.tags[OF]} was FASTER, not in the way that was predicted, and its audit said {verdict.verdict} ({said})"


def _none_judged(end: Ending) -> str:
    """Why no candidate has a verdict, with the best of the screens."""
    timed = _timed(end)
    best_ = next(iter(unjudged(end)), None)
    if best_ is not None:
        return (f"no candidate could be judged; the best of the screens, {best_.name} at {gain_of(best_).removeprefix('screen ')}, is no"
                " verdict")
    cut = next((row for row in end.rows if _is_cut(row)), None)
    if cut is not None:
        return f"by the screens none was clearly faster ({timed} timed), and the judgement of {cut.name} did not end in time"
    return f"by the screens none was faster ({timed} timed), so none was judged" if timed else "no candidate could be judged"


def _timed(end: Ending) -> int:
    """Candidates that the screen timed."""
    return sum(row.screen is not None and row.screen.status in ("timed", "hopeless") for row in end.rows)


def _is_cut(row: Experiment) -> bool:
    """Whether it was screened, and its judgement was begun and did not end."""
    return row.status == "screened" and row.reason.startswith(NOT_JUDGED) and row.screen is not None


def _unconfirmed(end: Ending) -> str:
    """", 2 of them FASTER once, none of 3 confirmations was"; nothing where nothing was to be confirmed."""
    count, said = len(best(end.rows)), verdicts(row for row in end.confirmations if row.tags.get(OF) not in _noisy_names(end))
    made = sum(len(found) for found in said.values())
    if not count:
        return ""
    none = f"none of {made} confirmations was" if made > 1 else "the confirmation was not" if made else "not confirmed"
    return f", {count} of them FASTER once, {none}"


def _noisy_names(end: Ending) -> set[str]:
    return {row.name for row in end.rows if noisy(row)}


def verdict_words(end: Ending) -> list[str]:
    """One line for the log of a run that kept nothing: each candidate's verdict with its interval, and the confirmations'."""
    words = [f"{row.name} {row.verdict.verdict}{f' {gain(row.verdict)}' if row.verdict.speedup is not None else ''}"
             for row in (*end.rows, *end.confirmations) if row.verdict is not None]
    return [f"Verdicts (speed-up, 95% interval): {'; '.join(words)}."] if words else []


def values(end: Ending) -> dict[str, Any]:
    """The variables of templates/optimize_report.md.j2."""
    tried = [row for row in end.rows if row.status != "not_applicable"]
    shown, not_shown = _listed(tried, end.kept)
    return {
        "name": end.workload.name, "result": result_line(end), "recognised": list(end.recognised), "changing": end.changing,
        "state": end.state, "used_s": end.used_s, "interrupted": end.interrupted,
        "experiments": [_experiment(row, end.kept) for row in shown], "ladder": claims.ladder(end),
        "change": _before_after(end), "profiled": end.after is not None,
        "own_timing": _own_timing(end), "spread": _spread(end), "notable_spread": NOTABLE_SPREAD, "warnings": warnings_of(end),
        "confirmations": [{**_experiment(row, None), "kept": end.kept is not None and row is end.kept.confirmation}
                          for row in end.confirmations],
        "shared_error": sum(is_confirmation(row) for row in end.confirmations) > 1,
        "left_out": [{"name": row.name, "reason": row.reason} for row in end.rows if row.status == "not_applicable"],
        "not_shown": not_shown, "pace": pace(end), "kept": _kept(end), "bought": _bought(end),
        "by_precision": claims.by_precision(end), "conditions": claims.conditions(end.kept),
        "reached": remains.reached(end), "bounds": remains.bound_rows(end), "left": remains.left(remains.as_kept(end) or end.baseline),
        "notes": [*end.notes, *not_decided(end), *history(end.confirmations, _noisy_names(end))],
        "clocks": end.clocks,
        "needs_gradients": end.needs_gradients,
        "optimized": str(end.folder / "optimized.py") if end.kept else None,
        "inputs": [{"path": spec.path or "input", "shape": "x".join(map(str, spec.shape)) or "scalar", "dtype": spec.dtype}
                   for spec in end.baseline.inputs],
    }


def write_reports(end: Ending) -> Path:
    """report.md, report.json, report.html and figures/; the path of report.md. Without a matplotlib that works, the figures are missing and
    the report says so. Raises NotWritable."""
    try:
        drawn = pictures.draw(end)
    except MachineLacks as error:
        drawn, end = [], replace(end, notes=[*end.notes, f"The figures were not drawn: {error.line()}"])
    pictures.write(end.folder, drawn)
    pictures.write_html(end.folder, values(end), drawn)
    report = write_text_atomic(end.folder / "report.md", render_report(end, drawn))
    write_json_atomic(end.folder / "report.json", document(end))
    return report


def render_report(end: Ending, drawn: Sequence[pictures.Picture] = ()) -> str:
    """report.md."""
    return render("optimize_report.md.j2", **values(end), pictures=drawn)


def document(end: Ending) -> dict[str, Any]:
    """report.json: the same figures for programs."""
    view = values(end)
    view["clocks"] = end.clocks.model_dump(mode="json") if end.clocks else None
    view["state"] = end.state.model_dump()
    view["rows"] = [row.model_dump(mode="json") for row in end.rows]
    view["confirmed"] = [row.model_dump(mode="json") for row in end.confirmations]
    view["ablation"] = [row.model_dump(mode="json") for row in end.ablation]
    view["hypotheses"] = [one.model_dump(mode="json") for one in end.hypotheses]
    return view


def pace(end: Ending) -> str:
    """How many candidates were looked at, and how fast; "" where none was."""
    judged = [row for row in end.rows if row.verdict is not None]
    looked = len({row.name for row in end.rows if row.verdict is not None or row.screen is not None})
    cut = [row for row in end.rows if _is_cut(row)]
    seconds = end.screening_s + sum(row.elapsed_s for row in (*judged, *cut, *end.confirmations))
    if not looked or seconds <= 0:
        return ""
    screened = f"{end.screened} candidate{'' if end.screened == 1 else 's'} screened ({_timed(end)} timed), " if end.screened else ""
    return f"{screened}{len(judged)} judged, in {seconds:.0f} s: {60 * looked / seconds:.1f} candidates a minute."


def _bought(end: Ending) -> list[dict[str, str]]:
    """What the first minutes of the search gave, as far as it lasted."""
    lasted, judged, known = pictures.last_s(end), pictures.bought(end, judged=True), pictures.bought(end, judged=False)
    return [{"minutes": str(minutes), "gain": f"{known[minutes]:.2f}x", "judged": f"{judged[minutes]:.2f}x"}
            for minutes in judged if lasted >= 60 * minutes]


def _listed(rows: Sequence[Experiment], kept: Kept | None) -> tuple[list[Experiment], int]:
    """(rows of the table, how many are left out): of those that were only screened, the best."""
    screened = sorted((row for row in rows if row.status == "screened"), key=lambda row: -((row.screen and row.screen.speedup) or 0.0))
    gone = {row.name for row in screened[MOST_SCREENED:] if kept is None or row.name != kept.row.name}
    return [row for row in rows if row.name not in gone], len(gone)


def _experiment(row: Experiment, kept: Kept | None) -> dict[str, Any]:
    verdict = row.verdict
    word = verdict.verdict if verdict is not None else {"out_of_budget": "out of budget"}.get(row.status, row.status.replace("_", " "))
    if row.status == "failed":
        word = "FAILED"
    return {
        "index": row.index, "name": row.name, "verdict": word, "gain": gain_of(row), "precision": row.precision,
        "reason": _reason(row), "predicted": row.predicted, "elapsed_s": f"{row.elapsed_s:.0f}", "file": row.candidate_file,
        "kept": kept is not None and row.name == kept.row.name,
    }


def _reason(row: Experiment) -> str:
    """The judge's reason, but for timed rows only what the interval does not say already."""
    comparison = row.verdict.comparison if row.verdict else None
    if comparison is None or row.verdict is None or row.verdict.speedup is None:
        return row.reason
    seen_pct = comparison.smallest_detectable_effect_pct
    if row.verdict.verdict == "AMBIGUOUS":
        return f"too noisy: a change by less than a factor of {1 + seen_pct / 100:.2f} can't be told from none"
    return f"differences above {seen_pct:.1f}% can be seen"


def _kept(end: Ending) -> dict[str, Any] | None:
    if end.kept is None:
        return None
    return {
        "name": end.kept.row.name, "gain": end.kept.gain, "apart": _apart(end.kept), "precision": end.kept.row.precision,
        "confirmed": end.kept.confirmation is not None, "first_gain": gain(end.kept.row.verdict), "predicted": end.kept.row.predicted,
        "passes": claims.passes(end), "audit": end.audit,
        "gradients": _gradients(end, end.kept),
    }


def _apart(kept: Kept) -> str:
    """Why two judgements of what was kept differ, as far as their durations tell; "" where they agree."""
    if kept.apart is None:
        return ""
    sides = [f"{us(one.comparison.reference.median_ns)} us before and {us(one.comparison.candidate.median_ns)} us after"
             for one in kept.apart if one.comparison is not None]
    return (f"The two judgements are further apart than their intervals: {', then '.join(sides)} (medians, the smaller gain first). Over "
            "the ladder the smaller one counts, where the two were not timed in turns.")


def _gradients(end: Ending, kept: Kept) -> str:
    """What a candidate without gradients means for the figure and for its user; "" where no_grad is no part of it."""
    if "no_grad" not in kept.row.passes:
        return ""
    alone = next((row.verdict for row in end.rows if row.name == "no_grad" and row.verdict is not None), None)
    part = "" if kept.row.name == "no_grad" else f"no_grad alone: {gain(alone)}" if alone is not None and alone.speedup is not None \
        else "no_grad was not judged alone"
    timed = "the original was timed with gradients on (unless it turns them off itself), outputs of optimized.py carry no gradient"
    return f"{part}; {timed}." if part else f"{timed[0].upper()}{timed[1:]}."


def _before_after(end: Ending) -> list[dict[str, str]]:
    """Durations from the judge's paired timing, where nothing was kept the median of the original's in all its timings of this run, or
    their range where they are too far apart for one; achieved rates are the original's work over those durations."""
    before, after = headline(end.baseline), headline(end.after) if end.after is not None else None
    comparison = end.kept.verdict.comparison if end.kept else None
    known, spread = _before_ns(end), _spread(end)
    old: tuple[float | None, ...] = (statistics.median(known) if known else before.duration_ns,)
    new_ns = None
    if comparison is not None:
        first, second = paired(comparison)
        old, new_ns = (first.median_ns,), second.median_ns
    elif spread is not None and spread["factor"] > NOTABLE_SPREAD:
        old = (min(known), max(known))
    work = end.baseline.work
    flops, moved = ((amount.value or None) if amount else None for amount in ((work.flops, work.min_bytes) if work else (None, None)))
    on_gpu = end.baseline.capture_metadata.device == "cuda"
    idle, old_idle, new_idle = idle_row(before, after or before, on_cpu=not on_gpu)
    rows = [
        ("Duration (us)", " to ".join(map(us, old)), us(new_ns)),
        ("Achieved TFLOP/s", " to ".join(_rate(flops, each, 1e3) for each in reversed(old)), _rate(flops, new_ns, 1e3)),
        ("Achieved GB/s", " to ".join(_rate(moved, each, 1.0) for each in reversed(old)), _rate(moved, new_ns, 1.0)),
        ("Launches a call", amount(before.launches if on_gpu else None), amount(after.launches if after and on_gpu else None)),
        (idle.replace("Idle%", "Idle share (%)"), two(old_idle), two(new_idle if after else None)),
    ]
    return [{"metric": metric, "before": old, "after": new} for metric, old, new in rows]


def _own_timing(end: Ending) -> str | None:
    """The original's duration by the baseline's own timing, where that is far enough from the paired one to move what rests on it."""
    timing, comparison = end.baseline.timing, end.kept.verdict.comparison if end.kept else None
    if timing is None or comparison is None or timing.median_ns <= 0:
        return None
    apart = timing.median_ns / paired(comparison)[0].median_ns
    return us(timing.median_ns) if max(apart, 1 / apart) > OWN_TIMING_APART else None


def _comparisons(end: Ending) -> list[Comparison]:
    verdicts = [row.verdict for row in (*end.rows, *end.confirmations) if row.verdict is not None]
    return [verdict.comparison for verdict in verdicts if verdict.comparison is not None]


def _before_ns(end: Ending) -> list[float]:
    """The original's median in the baseline's profile and in each of the judge's timings, ns, in the order that they were made."""
    first = [end.baseline.timing.median_ns] if end.baseline.timing is not None else []
    return [*first, *(item.reference.median_ns for item in _comparisons(end))]


def _spread(end: Ending) -> dict[str, Any] | None:
    """The range of the original's durations in this run; None with fewer than two."""
    known = _before_ns(end)
    if len(known) < 2 or min(known) <= 0:
        return None
    low, high = min(known), max(known)
    return {"low": us(low), "high": us(high), "count": len(known), "judged": len(_comparisons(end)), "factor": high / low}


def warnings_of(end: Ending) -> list[str]:
    """What makes the figures doubtful: the original's own spread, the noise of the judgements, the baseline's warnings, the clocks."""
    found, spread, timing = [], _spread(end), end.baseline.timing
    if spread is not None and spread["factor"] > NOTABLE_SPREAD:
        ends = f"{spread['low']} to {spread['high']} us"
        found.append(f"the original's duration differed {spread['factor']:.1f}-fold within this run ({ends}): "
                     "other work ran on the machine, or its clocks changed; pairs cancel most of that, single durations do not")
    judged = [row for row in end.rows if row.verdict is not None]
    if noise := sum(noisy(row) for row in judged):
        found.append(f"{noise} of {len(judged)} judgements were {_undecided(judged)} (AMBIGUOUS)")
    if timing is not None and timing.warning:
        found.append(f"the baseline's timing: {timing.warning}")
    comparison = end.kept.verdict.comparison if end.kept else None
    if comparison is not None and (noise_words := [f"{who} {side.warning}" for who, side in (
            ("original", comparison.reference), ("candidate", comparison.candidate)) if side.warning]):
        found.append(f"the judgement that counts: {', '.join(noise_words)}; the interval of the speed-up has that in it")
    reached_pct = remains.beyond_roofs_pct(end)
    if reached_pct is not None and reached_pct > SUSPECT_PEAK_PCT:
        found.append(f"a call takes less than its bound by the device's peak ({reached_pct:.0f}% of it): that was measured too low "
                     "(other work ran on the machine), or less is computed than was counted; shares of the roofs are too large")
    found += [f"baseline: {warning}" for warning in end.baseline.warnings]
    clocks = end.clocks.warnings if end.clocks else ()
    return [*found, *(warning for warning in clocks if warning not in end.baseline.warnings)]


def _rate(amount: float | None, duration_ns: float | None, scale: float) -> str:
    """amount / duration: FLOP/ns / 1e3 = TFLOP/s, B/ns = GB/s."""
    return NA if amount is None or duration_ns is None or duration_ns <= 0 else two(amount / duration_ns / scale)

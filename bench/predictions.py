"""Predicted against realised gain over ledgers: docs/predictions.md.

  python bench/predictions.py out/optimize build/optimize --out docs/predictions.md

Every ledger.jsonl below the folders counts, with the state.json beside it. What passes predicted without a number is not in it, nor what
no screen or judgement decided.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

from kernelwright.model.errors import BadInput  # noqa: E402
from kernelwright.model.trial import Hypothesis, Screen  # noqa: E402
from kernelwright.model.verdict import Experiment  # noqa: E402
from kernelwright.optimize import ablation, view  # noqa: E402
from kernelwright.optimize import state as states  # noqa: E402
from kernelwright.optimize.confirm import AUDIT, OF, ROLE, is_audit, is_confirmation  # noqa: E402
from kernelwright.optimize.ledger import Ledger  # noqa: E402
from kernelwright.optimize.passes import CATALOGUE  # noqa: E402
from kernelwright.optimize.plan import GRAPH, LADDER  # noqa: E402
from kernelwright.optimize.predicted import CONTEXTS, Realised, median_error_pct, realised  # noqa: E402
from kernelwright.optimize.stages import COUNTED_BUDGET_S  # noqa: E402
from kernelwright.report.text import cell  # noqa: E402

RINGS, SAMPLE_NS = (1, 2, 4, 8, 16), 0.4e6
"""As in kernelwright's probe (screen_look), which needs torch."""
HEAD = """# Predicted against realised

A pass says beforehand what it should give, where the workload's own profile supports a number: a range of the speed-up of a call, and
which quantity moves by how much (`src/kernelwright/optimize/passes/`). This page holds that against what came, over the ledgers named
below. It is written by `python bench/predictions.py FOLDER ... --out docs/predictions.md`, from nothing else; the ledgers of the page in
`docs/` are in `tests/data/ledgers.tar.xz`.

The *error* is the factor between the middle of the range (geometric) and what came, as a percentage above 1; *inside* counts
outcomes within the range. A pass is seen *alone* (a candidate of that pass only), *in the whole* (the winner against the winner without
it, the ablation; what takes idle time away may give the more there, the less work the others leave the device), and a *combination* is
held against the product of its passes' ranges. What two passes say of the same time counts once. What came is the judge's figure where
it judged, else the screen's. *Guess* is the error of one who always says 1.00x. The ladder's passes (torch.compile's modes, a CUDA graph,
no gradients) are much of what is alone, and move little: what is left without them is told apart.
"""


@dataclass(frozen=True)
class Run:
    """One ledger."""

    workload: str
    device: str
    torch: str
    precision: str
    budget_s: float
    rows: list[Experiment]


def main(argv: list[str] | None = None) -> int:
    """Write the page; without a prediction with an outcome, exit 2."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER", help="searched for ledger.jsonl")
    parser.add_argument("--out", type=Path, help="file to write (default: stdout)")
    args = parser.parse_args(argv)
    runs = load(args.folders)
    page = render(runs)
    if page is None:
        print("predictions: no ledger below these folders holds a prediction with an outcome (fix: optimise something first)",
              file=sys.stderr)
        return 2
    if args.out:
        args.out.write_text(page, encoding="utf-8")
    else:
        sys.stdout.write(page)
    return 0


def load(folders: Sequence[Path]) -> list[Run]:
    """Every ledger that can be read, by path; the others are told on stderr."""
    runs = []
    for path in sorted({path.resolve() for folder in folders for path in folder.rglob("ledger.jsonl")}):
        try:
            state, rows = states.load(path.parent), Ledger(path).rows
        except BadInput as error:
            print(f"predictions: left out: {error.line()}", file=sys.stderr)
            continue
        runs.append(Run(Path(state.workload).stem, state.device_name, state.torch_version, state.precision, state.budget_s, rows))
    return runs


def render(runs: Sequence[Run]) -> str | None:
    """The page; None without any outcome."""
    found = [one for run in runs for one in realised(run.rows)]
    if not found:
        return None
    parts = [part(runs) for part in (_silent, _moves, _ablation, _apart, _twice, _sources)]
    return "\n".join([HEAD, *_totals(found), *_by_pass(found), *(line for lines in parts for line in lines)]) + "\n"


def _totals(found: Sequence[Realised]) -> list[str]:
    lines = ["## All predictions", "", "| Seen | Predictions | Inside the range | Median error | Guess: median error |",
             "|---|---|---|---|---|"]
    groups = [(context, [one for one in found if one.context == context]) for context in CONTEXTS]
    own = [one for one in groups[0][1] if one.name not in (*LADDER, GRAPH)]
    for name, rows in [groups[0], ("alone, but the ladder's and a CUDA graph", own), *groups[1:], ("all", list(found))]:
        if rows:
            guessed = [replace(one, predicted=(1.0, 1.0)) for one in rows]
            lines.append(f"| {name} | {len(rows)} | {_inside(rows)} | {median_error_pct(rows):.0f}% | {median_error_pct(guessed):.0f}% |")
    return [*lines, "", *(_against_the_guess(own) if own else [])]


def _against_the_guess(own: Sequence[Realised]) -> list[str]:
    """Whether the ranges of what is not the ladder's say more than that nothing changes."""
    error, guess = median_error_pct(own), median_error_pct([replace(one, predicted=(1.0, 1.0)) for one in own])
    words = "closer than" if error < guess else "no closer than"
    return [f"Alone, and but for the ladder's and a CUDA graph, the middles of the ranges are {words} a guess of 1.00x: {error:.0f}% "
            f"against {guess:.0f}%. The search ranks by them beside what it has measured, and keeps nothing for a prediction.", ""]


def _by_pass(found: Sequence[Realised]) -> list[str]:
    lines = ["## By pass", "", "Alone and in the whole; medians.", "",
             "| Pass | Predictions | Predicted speed-up | What came | Inside the range | Median error |",
             "|---|---|---|---|---|---|"]
    for name in sorted({one.name for one in found if one.context != "combination"}):
        rows = [one for one in found if one.name == name and one.context != "combination"]
        low, high = (statistics.median(one.predicted[end] for one in rows) for end in (0, 1))
        came = statistics.median(one.realised for one in rows)
        said = f"{low:.2f} to {high:.2f} | {came:.2f}"
        lines.append(f"| {cell(name, 60)} | {len(rows)} | {said} | {_inside(rows)} | {median_error_pct(rows):.0f}% |")
    return [*lines, ""]


def _silent(runs: Sequence[Run]) -> list[str]:
    """Passes of which these ledgers say little."""
    rows = [row for run in runs for row in run.rows]
    screened = {name for row in rows if row.screen is not None and row.screen.speedup is not None for name in row.passes}
    ranged = {one.name for row in rows for one in row.prediction if one.gain is not None}
    alone = {one.name for run in runs for one in realised(run.rows) if one.context != "combination"}
    timed = CATALOGUE.keys() & screened
    lines = [f"{head}: {', '.join(f'`{name}`' for name in sorted(names))}." for head, names in (
        ("Never timed in these searches (they found nothing to change, or no time)", CATALOGUE.keys() - screened),
        ("Timed, and without a range in any of them", timed - ranged),
        ("With a range, and in no row above (timed in combinations alone, beside what they need, or not decided)", timed & ranged - alone),
    ) if names]
    return [line for one in lines for line in (one, "")]


def _moves(runs: Sequence[Run]) -> list[str]:
    """How the gains of kept passes came about, against how they were said to."""
    checked: list[Hypothesis] = []
    for run in runs:
        rows = [row for row in run.rows if row.hypotheses]
        checked += rows[-1].hypotheses if rows else ()
    if not checked:
        return []
    counts = {name: sum(one.result == name for one in checked) for name in ("confirmed", "not seen", "unexplained", "not checked")}
    counted = sum(run.budget_s >= COUNTED_BUDGET_S for run in runs)
    lines = ["## How it came about", "", "Of the passes that were kept: whether the quantities that each said it would move did (launches, "
             "idle time, time and bytes of operators), by the profiles before and after.", "",
             "| Confirmed | Not seen | Unexplained | Not checked |", "|---|---|---|---|",
             f"| {' | '.join(str(count) for count in counts.values())} |", "",
             "Not checked: it named no quantity, or none was measured. Hardware counters are read from a budget of "
             f"{COUNTED_BUDGET_S:g} s on, which {counted} of these {len(runs)} searches had.", "",
             "| Quantity | Seen | Not seen | Not measured |", "|---|---|---|---|", *_quantities(checked), ""]
    return [*lines, *_unexplained(checked), *_audits(runs)]


def _unexplained(checked: Sequence[Hypothesis]) -> list[str]:
    """Passes that gained otherwise, or more, than they said."""
    odd = [one for one in checked if one.result == "unexplained" and one.realised_gain is not None]
    if not odd:
        return []
    lines = ["Unexplained:", "", "| Pass | Times | Gained | More than predicted | Otherwise |", "|---|---|---|---|---|"]
    for name in sorted({one.name for one in odd}):
        gains = [one.realised_gain or 1.0 for one in odd if one.name == name]
        more = sum(one.name == name and "more than predicted" in one.words for one in odd)
        low, high = (f"{end:.2f}x" for end in (min(gains), max(gains)))
        lines.append(f"| {cell(name, 60)} | {len(gains)} | {low if low == high else f'{low} to {high}'} | {more} | {len(gains) - more} |")
    return [*lines, ""]


def _audits(runs: Sequence[Run]) -> list[str]:
    """What became of the winners with such a pass."""
    odd, audited, full, said = 0, 0, 0, list[str]()
    for run in runs:
        last = next((row for row in reversed(run.rows) if row.hypotheses), None)
        if last is None or all(one.result != "unexplained" for one in last.hypotheses):
            continue
        odd += 1
        of_it = [row for row in run.rows if row.tags.get(OF) == last.tags.get(OF)]
        verdicts = [row.verdict.verdict for row in of_it if is_audit(row) and row.verdict is not None]
        audited += bool(verdicts)
        said += verdicts[-1:]
        full += not verdicts and any(is_confirmation(row) and AUDIT in row.tags for row in of_it)
    if not odd:
        return []
    counts = ", ".join(f"{said.count(word)} {word}" for word in sorted(set(said)))
    return [f"{odd} winners had such a pass: {audited} were judged once more with every audit{f' ({counts})' if said else ''}, of {full} "
            f"the confirmation was made so, {odd - audited - full} had no time for it or are of earlier code.", ""]


def _quantities(checked: Sequence[Hypothesis]) -> list[str]:
    lines = []
    for name in sorted({move.quantity for one in checked for move in one.moves}):
        results = [move.result for one in checked for move in one.moves if move.quantity == name]
        lines.append(f"| {cell(name, 40)} | {' | '.join(str(results.count(one)) for one in ('seen', 'not seen', 'not measured'))} |")
    return lines


def _ablation(runs: Sequence[Run]) -> list[str]:
    """How many winners were taken apart: each of their passes dropped in turn, or some."""
    found, idle = list[str](), 0
    for run in runs:
        kept = next((row.tags.get(OF, row.name) for row in reversed(run.rows) if row.kept), None)
        winner = next((row for row in reversed(run.rows) if row.name == kept and ROLE not in row.tags), None)
        if winner is not None and (passes := set(ablation.to_drop(winner))):
            said = ablation.tried(run.rows, winner)
            tried = passes & said.keys()
            found.append("whole" if tried == passes else "in part" if tried else "not")
            idle += bool(passes & set(ablation.superfluous(said)))
    if not found:
        return []
    whole, part = found.count("whole"), found.count("in part")
    return ["## Ablation", "", f"Of {len(found)} winners of several passes {whole} were taken apart whole (each pass dropped in turn), "
            f"{part} in part; the others had no time for it, or are of earlier code. {idle} kept a pass that earned less than half a "
            "percent: that was seen after the confirmation, or what is left had no time for the judge, or the whole was clearly faster by "
            "the judge.", ""]


def _apart(runs: Sequence[Run]) -> list[str]:
    """How well the screens of two candidates in CUDA graphs, at two moments, tell what their timing in turns shows: by the ratio of each to
    the original of its moment, and levelled (view.levelled_speedup)."""
    errors: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
    for run in runs:
        own = {row.name: _with_calls(row) for row in run.rows if ROLE not in row.tags}
        originals_ns = view.scattered_originals_ns(own.values())
        for row in run.rows:
            turns = row.screen if ablation.is_ablation(row) else None
            pair = [own.get(row.tags.get(OF, "")), own.get(turns.against if turns else "")]
            screens = [one.screen for one in pair if one is not None and one.screen is not None and GRAPH in one.passes]
            if turns is None or not turns.speedup or len(screens) < 2 or any(one.pairs < view.LEAST_PAIRS for one in screens):
                continue
            (whole, rest), (first, second) = screens, (_own_figure(one, originals_ns) for one in screens)
            if whole.speedup and rest.speedup and first and second:
                errors[bool(originals_ns)].append((_off(whole.speedup / rest.speedup, turns.speedup), _off(first / second, turns.speedup)))
    if min(len(some) for some in errors.values()) < 2:
        return []
    lines = ["## Screened apart", "", "Ablation times the whole and what is left of it in turns. Where both are in a CUDA graph and were "
             "screened before, each at its moment: how far what their screens say is off, in the median, and what one pair in ten exceeds. "
             f"Where the original's times scatter in a search (a standard deviation of {100 * view.SCATTERED:g}% or more among screens "
             "with as many calls a sample), the search compares such candidates by the original's median time over their own.", "",
             "| Original's times | Pairs | By the ratio to the original | By their own times |", "|---|---|---|---|"]
    for scatters, words in ((True, "scatter"), (False, "do not")):
        sides = [[some[side] for some in errors[scatters]] for side in (0, 1)]
        said = [f"{statistics.median(one):.1f}%, {statistics.quantiles(one, n=10)[-1]:.0f}%" for one in sides]
        lines.append(f"| {words} | {len(errors[scatters])} | {' | '.join(said)} |")
    return [*lines, ""]


def _own_figure(screen: Screen, originals_ns: Mapping[int | None, float]) -> float | None:
    """The original's median time over the candidate's own; where the original's times don't scatter, any one time of it."""
    return originals_ns.get(screen.calls, 1.0 if not originals_ns else 0.0) / screen.candidate_ns if screen.candidate_ns else None


def _with_calls(row: Experiment) -> Experiment:
    """With the calls a sample, where the ledger is older than their record: by the probe's rule (screen_look), from the faster time."""
    screen = row.screen
    if screen is None or screen.calls is not None or not screen.reference_ns or not screen.candidate_ns:
        return row
    wanted = SAMPLE_NS / min(screen.reference_ns, screen.candidate_ns)
    calls = max((ring for ring in RINGS if ring < 2 * wanted), default=1)
    return row.model_copy(update={"screen": screen.model_copy(update={"calls": calls})})


def _off(one: float, other: float) -> float:
    """The factor between them, as a percentage above 1."""
    return 100 * (max(one / other, other / one) - 1)


def _twice(runs: Sequence[Run]) -> list[str]:
    """How far apart the judge's figures of one program at two moments are: a candidate's and its confirmation's, both FASTER."""
    apart, disjoint = list[float](), 0
    for run in runs:
        first = {row.name: row.verdict for row in run.rows if row.verdict is not None and ROLE not in row.tags}
        for row in run.rows:
            pair = (first.get(row.tags.get(OF, "")), row.verdict) if is_confirmation(row) else (None, None)
            one, other = (None if said is None or said.verdict != "FASTER" else said for said in pair)
            if one and other and one.speedup and other.speedup and one.interval and other.interval:
                apart.append(max(one.speedup / other.speedup, other.speedup / one.speedup))
                disjoint += one.interval[0] > other.interval[1] or other.interval[0] > one.interval[1]
    if len(apart) < 2:
        return []
    tenths = statistics.quantiles(apart, n=10)
    far = sum(factor > ablation.APART for factor in apart)
    return ["## Judged twice", "", f"{len(apart)} winners were FASTER as a candidate, and again as `optimized.py`, in new processes. The "
            f"two figures differ by {100 * (statistics.median(apart) - 1):.1f}% in the median, by {100 * (tenths[-1] - 1):.0f}% or more in "
            f"one pair of ten, by more than {100 * (ablation.APART - 1):.0f}% in {far}; in {disjoint} the intervals do not meet: each "
            "tells of its own moment alone.", ""]


def _sources(runs: Sequence[Run]) -> list[str]:
    lines = ["## Ledgers", "", "| Workload | Precision allowed | Device | torch | Rows |", "|---|---|---|---|---|"]
    return [*lines, *sorted(f"| {cell(run.workload, 60)} | {run.precision} | {cell(run.device, 60)} | {cell(run.torch, 30)} | "
                            f"{len(run.rows)} |" for run in runs)]


def _inside(rows: Sequence[Realised]) -> str:
    count = sum(one.inside for one in rows)
    return f"{count} ({100 * count / len(rows):.0f}%)"


if __name__ == "__main__":
    sys.exit(main())

"""The rows of optimize_table.py and kernelbench_table.py as a page in Markdown."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

from kernelwright.judge.correctness import PRECISION_ORDER  # noqa: E402
from kernelwright.optimize.claims import COMPILE_MODES  # noqa: E402
from kernelwright.optimize.plan import CASTS  # noqa: E402

BESIDE = "\"Beside it\": timed in turns with that row, in one process. Else the ratio of two speed-ups over the original, each timed in " \
         "pairs with it.\n"
APART = "\"Two judgements\": of what was kept, further apart than their intervals: the machine was in another state. The smaller one " \
        "counts.\n"
BOUNDS = "\"Before\" and \"at most\" are at the arithmetic that the original uses. \"After\" names the ceiling that sets the bound of " \
         "what was kept.\n"



def table(rows: Iterable[dict[str, Any]]) -> str:
    """All rows in Markdown, one table a precision and budget, with geometric means; then what the budgets bought, a row a run."""
    rows = list(rows)
    groups: dict[tuple[str, float], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["precision"], row["budget_s"]), []).append(row)
    pages = [_group(precision, budget, found) for (precision, budget), found in sorted(
        groups.items(), key=lambda item: (PRECISION_ORDER.index(item[0][0]), item[0][1]))]
    marks = [words for mark, words in (("over_beside", BESIDE), ("apart", APART)) if any(row.get(mark) for row in rows)]
    return "\n".join([*pages, *marks, *([BOUNDS] if any("error" not in row for row in rows) else []), _budgets(rows)])


def _bound_after(row: dict[str, Any]) -> str:
    """The share of its bound that what was kept reaches, and the ceiling that sets the bound."""
    share, ceiling = row["bound_after"], row.get("bound_ceiling")
    return "n/a" if share in (None, "n/a") else f"{share} ({_cell(ceiling)})" if ceiling else share


def _budgets(rows: Sequence[dict[str, Any]]) -> str:
    """One row a run: what its budget bought and whether it was held. Of a shared run the precision that was asked for."""
    runs = [row for row in rows if "wall_s" in row and row["precision"] == row["asked"]]
    if not runs:
        return ""
    lines = ["### What a budget buys", "", "Seconds are wall time. A budget holds from the start to the last judgement, the "
             "baseline's profile included; in all: with the closing profile and the report.", "",
             "| workload | precision | budget s | search s | held | in all s | kept speed-up [95%] | kept | candidates | a minute in all |",
             "|---|---|---|---|---|---|---|---|---|---|"]
    for row in sorted(runs, key=lambda row: (row["workload"], PRECISION_ORDER.index(row["asked"]), row["budget_s"])):
        lines.append(f"| {row['workload']} | {row['asked']} | {row['budget_s']:g} | {row['used_s']:.1f} | "
                     f"{'yes' if row['used_s'] <= row['budget_s'] else 'NO'} | {row['wall_s']:.1f} | "
                     f"{times(row['speedup'], row['interval'])} | "
                     f"{_kept(row)} | {row['candidates']} | {row['per_minute']:.1f} |")
    held, whole = (sum(row[key] <= row["budget_s"] for row in runs) for key in ("used_s", "wall_s"))
    means = [f"{precision} {budget_s:g} s {times(geometric_mean(row['speedup'] for row in found))} (of {len(found)})"
             for precision in PRECISION_ORDER for budget_s in sorted({row["budget_s"] for row in runs})
             if (found := [row for row in runs if (row["asked"], row["budget_s"]) == (precision, budget_s)])]
    said = f"Within the budget: {held} of {len(runs)} searches, {whole} of {len(runs)} in all."
    return "\n".join([*lines, "", f"{said} Geometric means: {', '.join(means)}.", ""])


def _group(precision: str, budget: float, rows: list[dict[str, Any]]) -> str:
    lines = [f"### {precision}, budget {budget:g} s", "",
             "| workload | original us | kept us | speed-up [95%] | best ladder row | its speed-up | over it [95%] | of the bound, "
             "before | after | at most | kept |", "|---|---|---|---|---|---|---|---|---|---|---|"]
    good = [row for row in rows if "error" not in row]
    for row in rows:
        if "error" in row:
            lines.append(f"| {row['workload']} | failed: {_cell(row['error'])} | | | | | | | | | |")
            continue
        over_it = "n/a" if row["over"] is None else times(row["over"], row["over_interval"])
        over_it += " (beside it)" if row.get("over_beside") else ""
        incomplete = " (ladder incomplete)" if is_ladder_incomplete(row) else ""
        lines.append(f"| {row['workload']} | {_us(row['before_us'])} | {_us(row['after_us'])} | {times(row['speedup'], row['interval'])} | "
                     f"{row['rung']}{incomplete} | {times(row['rung_speedup'])} | "
                     f"{over_it} | {row['bound'] or 'n/a'} | {_bound_after(row)} | "
                     f"{row['most'] or 'n/a'} | {_kept(row)} |")
    if good:
        means = {key: times(geometric_mean(row[key] for row in good)) for key in ("speedup", "rung_speedup")}
        whole = [row["over"] for row in good if row["over"] is not None]  # without its ladder a row is over nothing
        means["over"] = times(geometric_mean(whole)) + ("" if len(whole) == len(good) else f" of {len(whole)}") if whole else "n/a"
        lines.append(f"| geometric mean of {len(good)} | | | {means['speedup']} | | {means['rung_speedup']} | {means['over']} | | | | |")
    warm = [row["warm"] for row in good if row.get("warm") and row["warm"]["cold_s"] is not None]  # else there is nothing to reach
    shares = [one["share"] for one in warm if one["share"] is not None]
    if warm:
        left = "Again in half the budget with what the first run left (lessons, compilers' caches)"
        whole = [one["whole_share"] for one in warm if one.get("whole_share") is not None]
        with_it = f", in {geometric_mean(whole):.2f} of it with that profile ({len(whole)})" if whole else ""
        lines += ["", f"{left}: the same result (within 2%, the same passes within 5%) in {geometric_mean(shares):.2f} of the time "
                  f"after the baseline's profile (geometric mean of {len(shares)} of {len(warm)}){with_it}."
                  if shares else f"{left}: not reached."]
    return "\n".join([*lines, ""])


def is_ladder_incomplete(row: dict[str, Any]) -> bool:
    """Whether some of the ladder's rows were not timed: one of them may be better than the best that was."""
    return bool(row["ladder_missing"]) or _has_unseen_modes(row)


def _has_unseen_modes(row: dict[str, Any]) -> bool:
    """Whether a compile mode that was looked at with the level's own cast (it is named as the level) was not with the cast of the best row
    (none, where that is of full precision), or not with that of what was kept: it may be better. So it was when some of the rows were
    recorded."""
    best, kept = (CASTS & set(row[key].split(" ")[0].split("+")) for key in ("rung", "kept"))
    seen = {frozenset(name.split("+")) for name, gain in row.get("ladder", {}).items() if gain != "n/a"}
    return any({mode, row["precision"]} in seen and {mode, *casts} not in seen
               for mode in COMPILE_MODES for casts in ([best, kept] if kept else [best]))


def _kept(row: dict[str, Any]) -> str:
    """What was kept, and what of it earned nothing; whether no second judgement confirmed it, or two are further apart than their
    intervals: the smaller one counts."""
    apart = f" (two judgements: {' and '.join(times(one[0]) for one in row['apart'])})" if row.get("apart") else ""
    idle = f" ({', '.join(row['idle'])} earned nothing)" if row.get("idle") else ""
    return _cell(row["kept"]) + idle + (apart or (" (judged once)" if row.get("confirmed") is False else ""))


def geometric_mean(values: Iterable[float]) -> float:
    """exp of the mean logarithm; 1.0 of nothing."""
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs)) if logs else 1.0


def _us(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.1f}"


def times(value: float, interval: Sequence[float] | None = None) -> str:
    """A speed-up, and its interval in brackets."""
    return f"{value:.2f}x" + (f" [{interval[0]:.2f}, {interval[1]:.2f}]" if interval else "")


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "/").split())[:160]

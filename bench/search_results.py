"""The pages of docs/search-runs, each from the recorded rows beside it, and the tables of docs/search-results.md, from all of them.

  python bench/search_results.py
  python bench/search_results.py build/h200.json build/other.json --into h200

With files of optimize_table.py or kernelbench_table.py, their rows are taken over into docs/search-runs/NAME.json first: each takes the
place of the row of the same search (workload, precisions, budget). A row that failed takes no place, nor one without its ladder that of one
with it.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import optimize_page as page

from kernelwright.model.files import write_json_atomic, write_text_atomic

FOLDER = page.ROOT / "docs" / "search-runs"
RESULTS = page.ROOT / "docs" / "search-results.md"
SETS = {"h200": ("examples", "H200"), "compiled-h200": ("examples, compiled", "H200"), "h100": ("examples", "H100"),
        "beside-h200": ("beside the examples", "H200"),
        "kernelbench-h200": ("KernelBench", "H200"), "kernelbench-h100": ("KernelBench", "H100"),
        "cpu": ("small examples", "EPYC"), "cpu-xeon": ("small examples", "Xeon")}
"""File of rows -> (what was searched, the word of the device's name that tells it from others)."""
SHOWN = (("equal", 120.0), ("tf32", 120.0), ("bf16", 120.0))
SHOWN_OF_KERNELBENCH = (("equal", 120.0), ("tf32", 60.0), ("bf16", 60.0))
MARK = re.compile(r"<!-- (table: \w+|end) -->\n")
PROBLEM = re.compile(r"level(\d+)_(\d+)_(.*)")
"""The name of one of KernelBench's, in a row."""
ABOUT = "What they show and how they were made: [what the search finds](../search-results.md). Written by `python bench/search_results.py`."
Row = dict[str, Any]


def titled(name: str) -> str:
    """The page of a file of rows."""
    what, device = SETS[name]
    return f"# Recorded searches: {what}, {device}\n\n{ABOUT}\n\n{page.table(recorded(name))}"


def main(argv: list[str] | None = None) -> int:
    """Take rows over, write the pages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="rows to take over")
    parser.add_argument("--into", choices=SETS, help="the file of rows that takes them")
    args = parser.parse_args(argv)
    if bool(args.files) != bool(args.into):
        parser.error("FILE and --into belong together")
    if args.into:
        file = FOLDER / f"{args.into}.json"
        document = json.loads(file.read_text())
        try:
            new = [row for one in args.files for row in json.loads(one.read_text())["rows"] if "error" not in row]
        except (OSError, ValueError, KeyError, TypeError) as error:
            parser.error(f"a FILE holds no rows: {error} (fix: give those that optimize_table.py or kernelbench_table.py wrote)")
        for row in new:
            if SETS[args.into][1] not in row["device_name"]:
                parser.error(f"{row['workload']} ran on {row['device_name']}, {args.into} is of {SETS[args.into][1]} (fix: another --into)")
        document["rows"] = merged(document["rows"], new)
        write_json_atomic(file, document)
    for name in SETS:
        write_text_atomic(FOLDER / f"{name}.md", titled(name))
    write_text_atomic(RESULTS, filled(RESULTS.read_text()))
    return 0


def recorded(name: str) -> list[Row]:
    """The rows of one file."""
    return json.loads((FOLDER / f"{name}.json").read_text())["rows"]


def merged(known: Sequence[Row], new: Iterable[Row]) -> list[Row]:
    """The known rows with the new ones in their places, or after them."""
    found = {_search(row): row for row in known}
    for row in new:
        before = found.get(_search(row))
        if before is None or before["over"] is None or row["over"] is not None:
            found[_search(row)] = row
    return list(found.values())


def filled(text: str) -> str:
    """The page with its tables written anew. Raises KeyError where it names one that is not there, ValueError where marks don't pair."""
    parts = MARK.split(text)  # prose, mark, table, mark, prose ...
    if any((mark == "end") == (place % 2 == 0) for place, mark in enumerate(parts[1::2])) or len(parts) % 4 != 1:
        raise ValueError("each <!-- table: NAME --> needs an <!-- end --> before the next (fix: the marks of the page)")
    for place in range(1, len(parts), 4):
        name = parts[place].removeprefix("table: ")
        parts[place:place + 3] = [f"<!-- table: {name} -->\n", "".join(f"{line}\n" for line in TABLES[name]()), "<!-- end -->\n"]
    return "".join(parts)


def groups(name: str) -> dict[tuple[str, float], list[Row]]:
    """(precision, budget in s) -> the rows of the searches that were asked for that precision."""
    found: dict[tuple[str, float], list[Row]] = {}
    for row in recorded(name):
        if row["asked"] == row["precision"] and "error" not in row:
            found.setdefault((row["precision"], row["budget_s"]), []).append(row)
    return {key: found[key] for key in sorted(found, key=lambda key: (page.PRECISION_ORDER.index(key[0]), key[1]))}


def _sets() -> list[str]:
    """One line a set of searches: of one folder of workloads on one machine, at one precision and budget."""
    lines = _head("Workloads", "Precision", "Budget s", "Device", "Searches", "Over the original: mean, least", "Over the ladder: mean, "
                  "least", "Ladder incomplete", "Judged once", "Within the budget", "Searched")
    for name, (what, device) in SETS.items():
        for (precision, budget_s), rows in groups(name).items():
            if len(rows) > 1:
                over = [row["over"] for row in rows if row["over"] is not None]
                days = sorted(row["day"] for row in rows if row.get("day"))
                lines.append(_line(
                    f"[{what}](search-runs/{name}.md)", precision, f"{budget_s:g}", device, str(len(rows)),
                    _mean_and_least([row["speedup"] for row in rows]),
                    _mean_and_least(over) + _of(over, rows),
                    str(sum(page.is_ladder_incomplete(row) for row in rows)), str(sum(row.get("confirmed") is False for row in rows)),
                    f"{sum(row['used_s'] <= row['budget_s'] for row in rows)} of {len(rows)}",
                    " to ".join(dict.fromkeys((*days[:1], *days[-1:]))) + _of(days, rows) or "n/a"))
    return lines


def _examples() -> list[str]:
    return _matrix("Example", [(f"{precision}, {budget_s:g} s", groups("h200")[precision, budget_s]) for precision, budget_s in SHOWN])


def _kernelbench() -> list[str]:
    """With a last column: the second run's share of the time, after the baseline's profile and with it."""
    found = groups("kernelbench-h200")
    columns = [(f"{precision}, {budget_s:g} s", found[precision, budget_s]) for precision, budget_s in SHOWN_OF_KERNELBENCH]
    return _matrix("Problem", columns, ("Again, equal", {row["workload"]: row.get("warm") or {} for row in columns[0][1]}))


def _beside() -> list[str]:
    """One line a workload, precision and budget."""
    lines = _head("Workload", "Precision", "Budget s", "Over the original", "Kept")
    for (precision, budget_s), rows in groups("beside-h200").items():
        lines += [_line(row["workload"], precision, f"{budget_s:g}", _gain(row), row["kept"])
                  for row in sorted(rows, key=lambda row: row["workload"])]
    return lines


def _cpu() -> list[str]:
    return _matrix("Small example", [(SETS[name][1], groups(name)["equal", 60.0]) for name in ("cpu", "cpu-xeon")])


def _conditions() -> list[str]:
    """What is left of a call's gain beside the original in a CUDA graph, and where inputs come from the host and outputs go back: of the
    rows whose last judgement had the time for it. The last column: what there is to give there, were the call itself free."""
    lines = _head("Workloads", "Precision", "Budget s", "Rows in a graph", "Alone: mean, least", "In a graph: mean, least",
                  "Rows end to end", "Alone: mean, least", "End to end: mean, least", "Were the call free: mean")
    for name, sets in (("h200", SHOWN), ("kernelbench-h200", SHOWN_OF_KERNELBENCH)):
        for key in sets:
            found, cells = [{one["condition"]: one for one in row["timings"]} for row in groups(name)[key]], []
            for condition in ("graph", "end to end"):
                both = [one for one in found if one.get(condition) and one[condition]["speedup"]]
                cells += [f"{len(both)} of {len(found)}",
                          *(_mean_and_least([one[key]["speedup"] for one in both]) for key in ("warm", condition))]
            most = [value for value in map(_most, both) if value is not None]
            free = f"{page.times(page.geometric_mean(most))}{_of(most, both)}" if most else "n/a"
            lines.append(_line(SETS[name][0], key[0], f"{key[1]:g}", *cells, free))
    return lines


def _most(timed: dict[str, Row]) -> float | None:
    """What there would be to gain end to end, were the call itself free."""
    rests = [rest for side in ("reference_ns", "candidate_ns") if (rest := timed["end to end"][side] - timed["warm"][side]) > 0]
    return timed["end to end"]["reference_ns"] / min(rests) if rests else None


def _each_condition() -> list[str]:
    """In a graph and end to end, example by example."""
    found = [{row["workload"]: {one["condition"]: one for one in row["timings"]} for row in groups("h200")[key]} for key in SHOWN]
    lines = _head("Each example", *(f"{precision}: in a graph; end to end, were the call free" for precision, _ in SHOWN))

    def gain(timed: dict[str, Row], condition: str) -> str:
        speedup = timed.get(condition, {}).get("speedup")
        return page.times(speedup) if speedup else "n/a"

    for name in sorted(found[0]):
        cells = []
        for timed in (rows.get(name, {}) for rows in found):
            most = _most(timed) if gain(timed, "end to end") != "n/a" else None
            cells.append(f"{gain(timed, 'graph')}; {gain(timed, 'end to end')}, {'n/a' if most is None else page.times(most)}")
        lines.append(_line(name, *cells))
    return lines


def _minutes() -> list[str]:
    """What budgets buy: the searches of each example and precision that were made with several."""
    lines = _head("Example", "Precision", "Budget s", "Search s", "Kept", "Over the ladder", "By its screens after a minute", "After three",
                  "Candidates", "Candidates a minute, in all")
    searches: dict[tuple[str, str], list[Row]] = {}
    for (precision, _budget_s), rows in groups("h200").items():
        for row in rows:
            searches.setdefault((row["workload"], precision), []).append(row)
    for (name, precision), rows in sorted(searches.items(), key=lambda item: (-len(item[1]), item[0])):
        for row in sorted(rows, key=lambda row: row["budget_s"]) if len(rows) > 1 else ():
            bought = {one["minutes"]: one["gain"] for one in row["bought"]}
            over = "n/a" if row["over"] is None else page.times(row["over"], row["over_interval"])
            lines.append(_line(name, precision, f"{row['budget_s']:g}", f"{row['used_s']:.0f}",
                               page.times(row["speedup"], row["interval"]) + _mark(row), over,
                               *(bought.get(minutes, "n/a") for minutes in "13"), str(row["candidates"]), f"{row['per_minute']:.1f}"))
    return lines


TABLES: dict[str, Callable[[], list[str]]] = {
    "sets": _sets, "examples": _examples, "conditions": _conditions, "each_condition": _each_condition, "kernelbench": _kernelbench,
    "beside": _beside, "minutes": _minutes, "cpu": _cpu}


def _matrix(what: str, columns: Sequence[tuple[str, Sequence[Row]]], again: tuple[str, dict[str, Row]] | None = None) -> list[str]:
    """One line a workload, one column a set: the speed-up over the original, and over the ladder in brackets; geometric means last."""
    found = [{row["workload"]: row for row in rows} for _, rows in columns]
    names, warm = [name for name, _ in columns], again[1] if again else {}
    lines = _head(what, *names, *([again[0]] if again else []))
    for workload in sorted({name for rows in found for name in rows}, key=_order):
        lines.append(_line(readable(workload), *(_gain(rows.get(workload)) for rows in found),
                           *([_shares([warm.get(workload, {})])] if again else [])))
    means = []
    for _, rows in columns:
        over = [row["over"] for row in rows if row["over"] is not None]
        mean = f"{page.times(page.geometric_mean(over))}{_of(over, rows)}" if over else "n/a"
        means.append(f"{page.times(page.geometric_mean(row['speedup'] for row in rows))} ({mean})")
    return [*lines, _line("geometric mean", *means, *([_shares(warm.values())] if again else []))]


def _gain(row: Row | None) -> str:
    if row is None:
        return "n/a"
    over = "n/a" if row["over"] is None else page.times(row["over"]) + ("\\*" if page.is_ladder_incomplete(row) else "")
    return ("nothing" if row["kept"] == "nothing" else page.times(row["speedup"])) + f" ({over})" + _mark(row)


def _mark(row: Row) -> str:
    return " once" if row.get("confirmed") is False else ""


def _of(some: Sequence[Any], all_of_them: Sequence[Any]) -> str:
    return f" (of {len(some)})" if 0 < len(some) < len(all_of_them) else ""


def _shares(runs: Iterable[Row]) -> str:
    """The means of those that reached it, and of how many that were made and had something to reach."""
    known = [one for one in runs if one.get("cold_s") is not None]
    found = [[one[key] for one in known if one.get(key) is not None] for key in ("share", "whole_share")]
    if not found[0]:
        return "not reached" if known else "n/a"
    return ", ".join(f"{page.geometric_mean(values):.2f}" if values else "n/a" for values in found) + _of(found[0], known)


def _mean_and_least(values: Sequence[float]) -> str:
    return f"{page.times(page.geometric_mean(values))}, {page.times(min(values))}" if values else "n/a"


def readable(workload: str) -> str:
    """"level1/6 Matmul with large K dimension" of a problem's name; another as it is."""
    match = PROBLEM.fullmatch(workload)
    return workload if match is None else f"level{match[1]}/{match[2]} {' '.join(match[3].replace('_', ' ').split())}"


def _order(workload: str) -> tuple[int, int, str]:
    match = PROBLEM.fullmatch(workload)
    return (0, 0, workload) if match is None else (int(match[1]), int(match[2]), workload)


def _search(row: Row) -> tuple[str, str, str, float]:
    return row["workload"], row["asked"], row.get("precision", row["asked"]), row["budget_s"]


def _head(*names: str) -> list[str]:
    return [_line(*names), "|" + "---|" * len(names)]


def _line(*cells: str) -> str:
    return f"| {' | '.join(one.replace('|', '/') for one in cells)} |"


if __name__ == "__main__":
    sys.exit(main())

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
SETS = {"h200": "examples", "compiled-h200": "examples, compiled", "h100": "examples", "kernelbench-h200": "KernelBench",
        "kernelbench-h100": "KernelBench", "cpu": "small examples", "cpu-xeon": "small examples"}
"""File of rows -> what was searched."""
TABLE = re.compile(r"(<!-- table: ([a-z_]+) -->\n).*?(\n<!-- end -->)", re.DOTALL)
PROBLEM = re.compile(r"level(\d+)_(\d+)_(.*)")
"""The name of one of KernelBench's, in a row."""
Row = dict[str, Any]


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
        document["rows"] = merged(document["rows"], [row for one in args.files for row in json.loads(one.read_text())["rows"]])
        write_json_atomic(file, document)
    for name in SETS:
        write_text_atomic(FOLDER / f"{name}.md", page.table(recorded(name)))
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
        if "error" not in row and (before is None or before["over"] is None or row["over"] is not None):
            found[_search(row)] = row
    return list(found.values())


def filled(text: str) -> str:
    """The page with its tables written anew. Raises KeyError where it names one that is not there."""
    return TABLE.sub(lambda match: match[1] + "\n".join(TABLES[match[2]]()) + match[3], text)


def groups(name: str) -> dict[tuple[str, float], list[Row]]:
    """(precision, budget in s) -> the rows of the searches that were asked for that precision."""
    found: dict[tuple[str, float], list[Row]] = {}
    for row in recorded(name):
        if row["asked"] == row["precision"]:
            found.setdefault((row["precision"], row["budget_s"]), []).append(row)
    return {key: found[key] for key in sorted(found, key=lambda key: (page.PRECISION_ORDER.index(key[0]), key[1]))}


def _sets() -> list[str]:
    """One line a set of searches: of one folder of workloads on one machine, at one precision and budget."""
    lines = _head("Workloads", "Precision", "Budget s", "Device", "Searches", "Over the original: mean, least", "Over the ladder: mean, "
                  "least", "Ladder incomplete", "Judged once", "Within the budget", "Searched")
    for name, what in SETS.items():
        for (precision, budget_s), rows in groups(name).items():
            if len(rows) > 1:
                over = [row["over"] for row in rows if row["over"] is not None]
                days = sorted({row["day"] for row in rows if row["day"]})
                unknown = sum(row["day"] is None for row in rows)
                lines.append(_line(
                    f"[{what}](search-runs/{name}.md)", precision, f"{budget_s:g}", device(rows[0]), str(len(rows)),
                    _mean_and_least([row["speedup"] for row in rows]),
                    _mean_and_least(over) + (f" (of {len(over)})" if 0 < len(over) < len(rows) else ""),
                    str(sum(page.is_ladder_incomplete(row) for row in rows)), str(sum(row.get("confirmed") is False for row in rows)),
                    f"{sum(row['used_s'] <= row['budget_s'] for row in rows)} of {len(rows)}",
                    " to ".join(dict.fromkeys((days[0], days[-1]))) + (f" ({unknown} n/a)" if unknown else "")))
    return lines


def device(row: Row) -> str:
    """"H200" of "NVIDIA H200", "EPYC" of "AMD EPYC 9V74 80-Core Processor"."""
    return row["device_name"].split()[1].removesuffix("(R)")


def _examples() -> list[str]:
    columns = [("h200", (precision, 120.0)) for precision in ("equal", "bf16", "tf32")]
    return _matrix("Example", columns, lambda name, key: f"{key[0]}, {key[1]:g} s")


def _kernelbench() -> list[str]:
    columns = [("kernelbench-h200", key) for key in (("equal", 120.0), ("bf16", 60.0), ("tf32", 60.0))]
    lines = _matrix("Problem", columns, lambda name, key: f"{key[0]}, {key[1]:g} s")
    again = {readable(row["workload"]): row["warm"] for row in groups("kernelbench-h200")["equal", 120.0] if row.get("warm")}
    shares = {name: (one["share"], one["whole_share"]) for name, one in again.items() if one["share"] is not None}
    ends = ["Again, equal", "---", *(_shares(shares.get(line.split(" | ")[0].removeprefix("| "))) for line in lines[2:-1]),
            _shares(tuple(page.geometric_mean(one[place] for one in shares.values()) for place in (0, 1)))]
    return [f"{line}{end}|" if end == "---" else f"{line} {end} |" for line, end in zip(lines, ends, strict=True)]


def _cpu() -> list[str]:
    return _matrix("Small example", [(name, ("equal", 60.0)) for name in ("cpu", "cpu-xeon")], lambda name, key: device(recorded(name)[0]))


def _minutes() -> list[str]:
    """What budgets buy: the searches of one example at one precision."""
    lines = _head("Budget s", "Search s", "Kept", "By its screens after a minute", "after three", "Candidates", "A minute, in all")
    for (precision, budget_s), rows in groups("h200").items():
        for row in rows:
            if precision == "equal" and row["workload"] == "conv_block":
                bought = {one["minutes"]: one["gain"] for one in row["bought"]}
                lines.append(_line(f"{budget_s:g}", f"{row['used_s']:.0f}", _x(row["speedup"], row["interval"]) + _mark(row),
                                   *(bought.get(minutes, "n/a") for minutes in "13"), str(row["candidates"]), f"{row['per_minute']:.1f}"))
    return lines


TABLES: dict[str, Callable[[], list[str]]] = {
    "sets": _sets, "examples": _examples, "kernelbench": _kernelbench, "minutes": _minutes, "cpu": _cpu}


def _matrix(what: str, columns: Sequence[tuple[str, tuple[str, float]]], named: Callable[[str, tuple[str, float]], str]) -> list[str]:
    """One line a workload, one column a set: the speed-up over the original, and over the ladder in brackets; geometric means last."""
    found = [{row["workload"]: row for row in groups(name)[key]} for name, key in columns]
    lines = _head(what, *(named(name, key) for name, key in columns))
    for workload in sorted({name for rows in found for name in rows}, key=_order):
        lines.append(_line(readable(workload), *(_gain(rows.get(workload)) for rows in found)))
    means = [[page.geometric_mean(row[key] for row in rows.values() if row[key] is not None) for key in ("speedup", "over")]
             for rows in found]
    return [*lines, _line("geometric mean", *(f"{gain:.2f}x ({over:.2f}x)" for gain, over in means))]


def _gain(row: Row | None) -> str:
    if row is None:
        return "n/a"
    over = "n/a" if row["over"] is None else f"{row['over']:.2f}x" + ("\\*" if page.is_ladder_incomplete(row) else "")
    return ("nothing" if row["kept"] == "nothing" else _x(row["speedup"])) + f" ({over})" + _mark(row)


def _mark(row: Row) -> str:
    return " once" if row.get("confirmed") is False else ""


def _shares(found: Sequence[float] | None) -> str:
    return "n/a" if found is None else f"{found[0]:.2f}, {found[1]:.2f}"


def _mean_and_least(values: Sequence[float]) -> str:
    return f"{_x(page.geometric_mean(values))}, {_x(min(values))}" if values else "n/a"


def _x(value: float, interval: Sequence[float] | None = None) -> str:
    return f"{value:.2f}x" + (f" [{interval[0]:.2f}, {interval[1]:.2f}]" if interval else "")


def readable(workload: str) -> str:
    """"level1/6 Matmul with large K dimension" of a problem's name; another as it is."""
    match = PROBLEM.fullmatch(workload)
    return workload if match is None else f"level{match[1]}/{match[2]} {' '.join(match[3].split('_')).strip()}"


def _order(workload: str) -> tuple[int, int, str]:
    match = PROBLEM.fullmatch(workload)
    return (0, 0, workload) if match is None else (int(match[1]), int(match[2]), workload)


def _search(row: Row) -> tuple[str, str, str, float]:
    return row["workload"], row["asked"], row.get("precision", row["asked"]), row["budget_s"]


def _head(*names: str) -> list[str]:
    return [_line(*names), "|" + "---|" * len(names)]


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.exit(main())

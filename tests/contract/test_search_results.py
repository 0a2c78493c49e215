"""docs/search-results.md, the tables behind it and docs/predictions.md, against the recorded rows and ledgers."""

from __future__ import annotations

import json
import math
import re
import statistics
from collections import Counter
from pathlib import Path

import pytest

from archives import unpack
from bench_scripts import load
from kernelwright.optimize import ablation
from kernelwright.optimize import state as states
from kernelwright.optimize.confirm import is_audit, is_confirmation
from kernelwright.optimize.ending import Kept
from kernelwright.optimize.hypothesis import ratio_of
from kernelwright.optimize.ledger import Ledger
from kernelwright.optimize.passes import CATALOGUE
from kernelwright.probe.rewrites import transposed_weights

ROOT = Path(__file__).resolve().parents[2]
LEDGERS = ROOT / "tests" / "data" / "ledgers.tar.xz"

pages, predictions, results, table_rows = (load(name) for name in ("optimize_page", "predictions", "search_results", "optimize_rows"))


def said(page: str = "search-results") -> str:
    """A page of docs/ on one line."""
    return " ".join((ROOT / "docs" / f"{page}.md").read_text().split())


def said_lines() -> list[str]:
    return (ROOT / "docs" / "search-results.md").read_text().splitlines()


def rows_of(runs: str, precision: str, budget_s: float) -> dict[str, dict]:
    """Workload -> its row."""
    return {row["workload"]: row for row in results.groups(runs)[precision, budget_s]}


def judged(folder: Path, name: str) -> list:
    """The verdicts of one recorded run, in order."""
    return [row.verdict for row in Ledger(folder / "ledgers" / name / "ledger.jsonl").rows if row.verdict is not None]


def screens(folder: Path, name: str) -> dict[str, float]:
    """What a recorded run screened -> the speed-up."""
    rows = Ledger(folder / "ledgers" / name / "ledger.jsonl").rows
    return {row.name: row.screen.speedup for row in rows if row.screen is not None and row.screen.speedup is not None}


def what_was_kept(folder: Path, name: str) -> tuple[Kept, list[str]]:
    """What a recorded run kept, and which of its passes earned nothing."""
    rows = Ledger(folder / "ledgers" / name / "ledger.jsonl").rows
    confirmation = next((row for row in reversed(rows) if row.kept and is_confirmation(row)), None)
    winner = next(row for row in reversed(rows) if row.verdict is not None and (
        row.name == confirmation.tags["of"] if confirmation is not None else row.verdict.verdict == "FASTER"))
    kept = Kept(winner, confirmation)
    return kept, table_rows.idle_passes(rows, kept)


def of_a_minute(rows: list, name: str = "") -> float:
    """The speed-up of what a search kept, with this pass in it: the last figure, of the confirmation where there is one. 1.0: nothing."""
    judged = [row for row in rows if row.verdict is not None and not is_audit(row)]
    last = next((row for row in reversed(judged) if is_confirmation(row) or row.verdict.verdict == "FASTER"), None)
    found = last is not None and last.verdict.verdict == "FASTER" and (not name or name in last.passes)
    return last.verdict.speedup if found else 1.0


def run_of(name: str, precision: str) -> str:
    """The recorded searches of which the row of an example at 120 s is."""
    first = {"equal": {"conv_block", "depthwise_separable_conv"}, "bf16": {"conv_block", "embedding_projection", "gpt2", "sdpa_attention"}}
    last = {"equal": {"embedding_projection", "gpt2"}, "tf32": {"conv_block"}, "bf16": {"mlp_activations"}}
    return "h200zza" if name in first.get(precision, ()) else "h200zze" if name in last[precision] else "h200zzb"


NIGHT = [
    *((name, "equal") for name in ("lstm_sequence_encoder", "mlp_activations", "depthwise_separable_conv")),
    *((name, "tf32") for name in ("mlp_activations", "conv_block", "embedding_projection", "sdpa_attention", "depthwise_separable_conv")),
    *((name, "bf16") for name in ("mlp_activations", "depthwise_separable_conv", "sdpa_attention")),
]
"""Searches of the night of 29 November, h200zy."""


def test_the_pages_are_those_of_the_recorded_rows_and_ledgers(tmp_path):
    unpack(LEDGERS, tmp_path)
    assert predictions.main([str(tmp_path / "ledgers"), "--out", str(tmp_path / "page.md")]) == 0
    assert (tmp_path / "page.md").read_text() == (ROOT / "docs" / "predictions.md").read_text()
    folder = ROOT / "docs" / "search-runs"
    assert {file.stem for file in folder.glob("*.json")} == set(results.SETS) == {file.stem for file in folder.glob("*.md")}
    for name in results.SETS:
        assert results.titled(name) == (folder / f"{name}.md").read_text(), f"{name}: run bench/search_results.py"
    text = (ROOT / "docs" / "search-results.md").read_text()
    assert results.filled(text) == text, "run bench/search_results.py"
    assert set(results.MARK.findall(text)) == {"end", *(f"table: {name}" for name in results.TABLES)}


def test_where_the_originals_scatter_own_times_tell_more_than_ratios():
    """What the search compares candidates in CUDA graphs by (optimize/view.py)."""
    page = (ROOT / "docs" / "predictions.md").read_text()
    off = {words: [float(one) for one in re.findall(r"([\d.]+)%", line)] for words in ("scatter", "do not")
           for line in page.splitlines() if line.startswith(f"| {words} | ")}
    (ratio, far), (own, far_own) = off["scatter"][:2], off["scatter"][2:]
    assert own < 0.75 * ratio and far_own < 0.75 * far
    assert off["do not"][0] < off["do not"][2], "elsewhere the ratios are closer"


def test_cells_of_the_tables_are_what_the_rows_say():
    """Worked out here from the rows alone, by none of the script's functions."""
    lines = {line.split(" | ")[0].removeprefix("| "): line for line in reversed(said_lines()) if "| Precision |" not in line}
    h200, problems, xeon = (json.loads((ROOT / "docs" / "search-runs" / f"{name}.json").read_text())["rows"]
                            for name in ("h200", "kernelbench-h200", "cpu-xeon"))

    def one(rows: list[dict], name: str, precision: str, budget_s: float) -> dict:
        return next(row for row in rows if name in row["workload"] and (row["asked"], row["budget_s"]) == (precision, budget_s))

    heads = [line for line in reversed(lines.values()) if line.startswith(("| Example", "| Problem", "| Small"))]
    assert heads == ["| Example | equal, 120 s | tf32, 120 s | bf16, 120 s |",
                     "| Problem | equal, 120 s | tf32, 60 s | bf16, 60 s | Again, equal |",
                     "| Small example | EPYC | Xeon |"]
    for name in ("gpt2", "sdpa_attention", "embedding_projection"):  # whole ladders
        rows = [one(h200, name, level, 120.0) for level in ("equal", "tf32", "bf16")]
        cells = [f"{row['speedup']:.2f}x ({row['over']:.2f}x){'' if row['confirmed'] else ' once'}" for row in rows]
        shown = [line for line in said_lines() if line.startswith(f"| {name} |")]
        assert shown[0] == f"| {name} | {' | '.join(cells)} |"
        small = one(xeon, name, "equal", 60.0)
        gain = "nothing" if small["kept"] == "nothing" else f"{small['speedup']:.2f}x"
        assert shown[-1].split(" | ")[2].startswith(f"{gain} ({small['over']:.2f}x")
    row = one(problems, "BatchNorm", "equal", 120.0)
    cells = lines["level2/39 Gemm Scale BatchNorm"].split(" | ")
    assert cells[1] == f"{row['speedup']:.2f}x ({row['over']:.2f}x)"
    assert cells[-1] == f"{row['warm']['share']:.2f}, {row['warm']['whole_share']:.2f} |"
    both = [math.prod(found) ** (1 / 7) for found in zip(*((row["speedup"], row["over"]) for row in h200 if (
        row["asked"], row["budget_s"]) == ("bf16", 120.0)), strict=True)]
    assert f" | {both[0]:.2f}x ({both[1]:.2f}x) |" in (ROOT / "docs" / "search-results.md").read_text().split("| geometric mean |")[1]
    timed = [{one["condition"]: one for one in row["timings"]} for row in h200 if (row["asked"], row["budget_s"]) == ("tf32", 120.0)]
    timed = [one for one in timed if "end to end" in one]
    left = [one["end to end"]["speedup"] for one in timed]
    sides = ("reference_ns", "candidate_ns")
    most = [one["end to end"][sides[0]] / min(one["end to end"][side] - one["warm"][side] for side in sides) for one in timed]
    assert all(whole >= 0.98 * own for whole, own in zip(most, left, strict=True)), "more than were the call free"
    assert f"| {len(left)} of 7 | " in (line := next(line for line in said_lines() if line.startswith("| examples | tf32 | 120 |")))
    mean_left, mean_most = (math.prod(found) ** (1 / len(left)) for found in (left, most))
    assert line.endswith(f" | {mean_left:.2f}x, {min(left):.2f}x | {mean_most:.2f}x |")
    for budget_s in (60, 180):
        row = one(h200, "conv_block", "equal", float(budget_s))
        assert next(line for line in said_lines() if line.startswith(f"| conv_block | equal | {budget_s} | ")).split(" | ")[3:5] == [
            f"{row['used_s']:.0f}", f"{row['speedup']:.2f}x [{row['interval'][0]:.2f}, {row['interval'][1]:.2f}]"]


def test_the_recorded_searches_reach_what_optimize_is_for():
    """Above the original and the ladder, none slower than the original, each within its budget, again in a third of the time."""
    for precision, least, least_over in (("equal", 1.7, 1.2), ("bf16", 5.5, 1.2), ("tf32", 1.7, 1.2)):
        rows = rows_of("h200", precision, 120.0).values()
        assert len(rows) == 7 and all(row["speedup"] >= 1.0 and row["over"] >= 1.0 for row in rows)
        assert pages.geometric_mean(row["speedup"] for row in rows) >= least
        assert pages.geometric_mean(row["over"] for row in rows) >= least_over
    for precision, budget_s in (("equal", 120.0), ("bf16", 60.0), ("tf32", 60.0)):
        names = rows_of("kernelbench-h200", precision, budget_s)
        assert [sum(name.startswith(f"level{level}_") for name in names) for level in (1, 2, 3)] == [10, 5, 5]
    problems = rows_of("kernelbench-h200", "equal", 120.0).values()
    assert Counter(row["day"] for row in problems) == {"2026-11-30": 20}
    again = [row["warm"] for row in problems if row["kept"] != "nothing" and row["warm"]["share"] is not None]
    assert all(row["speedup"] >= 1.0 for row in problems) and len(again) == 17
    assert max(pages.geometric_mean(one[key] for one in again) for key in ("share", "whole_share")) < 1 / 3
    for runs in ("cpu", "cpu-xeon"):
        assert len(found := rows_of(runs, "equal", 60.0).values()) == 7 and min(row["speedup"] for row in found) >= 1.0
    every = [row for name in results.SETS for row in results.recorded(name)]
    assert len(every) > 150 and all(row["used_s"] <= row["budget_s"] for row in every)


def test_what_is_said_of_the_time_after_a_budget_is_what_was_measured():
    late = {name: sorted(row["wall_s"] - row["budget_s"] for row in results.recorded(name)) for name in ("h200", "h100")}
    words = "ended {:.0f} s after their budget in the median, at worst {:.0f} s, those on an H100 at worst {:.0f} s."
    assert words.format(statistics.median(late["h200"]), late["h200"][-1], late["h100"][-1]) in said()
    inside = {name: sum(row["wall_s"] <= row["budget_s"] for row in results.recorded(name)) for name in ("h200", "kernelbench-h200")}
    words = "With them {} of {} on the H200 are within it, of KernelBench's {} of {}."
    assert words.format(inside["h200"], len(late["h200"]), inside["kernelbench-h200"], len(results.recorded("kernelbench-h200"))) in said()


def test_what_is_said_of_calls_from_and_to_the_hosts_memory_first_is_what_the_table_says(tmp_path):
    rows = {line.split(" | ")[1]: line.split(" | ") for line in said_lines() if line.startswith("| examples | ")}
    levels = ("equal", "tf32", "bf16")
    words = "the seven come to {} at equal precision, the five that were timed so to {} at tf32 and {} at bf16."
    assert words.format(*(rows[level][-2].split(",")[0] for level in levels)) in said()
    assert [rows[level][-4].split()[0] for level in levels] == ["7", "5", "5"]
    unpack(LEDGERS, tmp_path)
    runs = {("embedding_projection", "tf32"): "zy", ("depthwise_separable_conv", "tf32"): "zy",
            ("embedding_projection", "bf16"): "zp", ("depthwise_separable_conv", "bf16"): "zy"}
    before = {key: next(one.speedup for verdict in judged(tmp_path, f"h200{run}_{'_'.join(key)}-120s") for one in verdict.timings
                        if one.condition == "end to end") for key, run in runs.items()}
    now = {(name, level): one["speedup"] for level in levels for name, row in rows_of("h200", level, 120.0).items()
           for one in row["timings"] if one["condition"] == "end to end"}
    assert not now.keys() & before.keys() and len(now | before) == 21
    means = [pages.geometric_mean(gain for key, gain in (now | before).items() if key[1] == level) for level in levels[1:]]
    assert "Missing there are the embedding and the depthwise example: in searches before they came to {:.2f}x to {:.2f}x, and with that " \
        "the means of seven are {:.2f}x and {:.2f}x.".format(min(before.values()), max(before.values()), *means) in said()
    anew = {(name, runs) for name in ("h200", "kernelbench-h200") for runs, rows in results.groups(name).items()
            for row in rows if row.get("conditions_anew")}
    assert anew == {("h200", ("equal", 120.0)), ("kernelbench-h200", ("equal", 120.0))}
    assert [name for name, row in rows_of("h200", "equal", 120.0).items() if row.get("conditions_anew")] == ["gpt2"]
    assert sum(row["conditions_anew"] for row in rows_of("kernelbench-h200", "equal", 120.0).values()) == 8
    assert "eight of KernelBench's rows at equal precision and GPT-2's are of such a one" in said()
    shown = next(line for line in said_lines() if line.startswith("| lstm_sequence_encoder | ") and ";" in line).split(" | ")
    for level, cell in zip(("equal", "tf32", "bf16"), shown[1:], strict=True):
        timed = {one["condition"]: one for one in rows_of("h200", level, 120.0)["lstm_sequence_encoder"]["timings"]}
        whole, alone = timed["end to end"], timed["warm"]
        most = max(whole["reference_ns"] / (whole[side] - alone[side]) for side in ("reference_ns", "candidate_ns"))
        assert cell.removesuffix(" |") == f"{timed['graph']['speedup']:.2f}x; {whole['speedup']:.2f}x, {most:.2f}x"


def test_a_row_is_of_the_day_that_its_ledger_says(tmp_path):
    unpack(LEDGERS, tmp_path)
    days: dict[float, str] = {}
    known: dict[str, set[str]] = {}
    for file in (tmp_path / "ledgers").glob("*/ledger.jsonl"):
        state = states.load(file.parent)
        known.setdefault(state.device_name, set()).add(state.started_utc[:10])
        days |= {verdict.speedup: state.started_utc[:10] for verdict in judged(tmp_path, file.parent.name) if verdict.speedup}
    held = 0
    for name in results.SETS:
        for row in results.recorded(name):
            figures = [row["speedup"], *(one[0] for one in row.get("apart") or [])] if row["kept"] != "nothing" else []
            found = {days[one] for one in figures if one in days}
            held += bool(found)
            assert not found or row["day"] in found, (name, row["workload"])
            assert row["day"] is None or row["day"] in known[row["device_name"]], (name, row["workload"])
    assert held > 130


def test_what_is_marked_as_judged_once_is_so_in_the_ledgers(tmp_path):
    """A run's row has its confirmation's figure where there is one, else the candidate's."""
    unpack(LEDGERS, tmp_path)
    roles: dict[float, set[str]] = {}
    confirmed: dict[float, bool] = {}
    for file in (tmp_path / "ledgers").glob("*/ledger.jsonl"):
        ledger = Ledger(file).rows
        for row in ledger:
            if row.verdict is not None and row.verdict.speedup is not None:
                roles.setdefault(row.verdict.speedup, set()).add(row.tags.get("role", "candidate"))
                confirmed[row.verdict.speedup] = any(one.kept and is_confirmation(one) for one in ledger)
    found = [row for name in results.SETS
             for row in results.recorded(name)
             if row["kept"] != "nothing" and row["asked"] == row["precision"]]
    took = {row.verdict.speedup: row.elapsed_s for file in (tmp_path / "ledgers").glob("h200z*/ledger.jsonl") for row in Ledger(file).rows
            if row.verdict is not None and row.verdict.speedup is not None}
    rows = rows_of("kernelbench-h200", "equal", 120.0).values()
    once = sorted(took[row["speedup"]] for row in rows if row["confirmed"] is False)
    later = {row.verdict.speedup for run in "de" for file in (tmp_path / "ledgers").glob(f"h200zz{run}_kb_*/ledger.jsonl")
             for row in Ledger(file).rows if row.verdict is not None}
    since = [row["confirmed"] for row in rows if row["kept"] != "nothing" and row["speedup"] in later]
    assert len(once) == 5 and (len(since), since.count(False)) == (12, 1)
    assert f"KernelBench's five of 120 s at equal precision took {once[0]:.0f} to {once[-1]:.0f} s to judge; of the searches since more " \
        "time is held back for such twelve kept something, one of them judged once." in said()
    assert len(found) > 50
    for row in found:
        judged_as = {role for one in row.get("apart") or [[row["speedup"]]] for role in roles[one[0]]}
        known = confirmed[row["speedup"]] if "audit" in judged_as else "confirmation" in judged_as
        assert row["confirmed"] == known, (row["workload"], row["precision"], row["budget_s"])


def test_judgements_that_are_apart_are_marked_where_the_ledgers_have_them(tmp_path):
    unpack(LEDGERS, tmp_path)
    known: dict[float, Kept] = {}
    for file in (tmp_path / "ledgers").glob("*/ledger.jsonl"):
        judged = [row for row in Ledger(file).rows if row.verdict is not None and row.verdict.speedup is not None]
        candidates = {row.name: row for row in judged if not row.tags.get("role")}
        for row in judged:
            of = row.tags.get("of", row.name)
            if not row.kept or row.tags.get("role", "confirmation") not in ("confirmation", "audit") or of not in candidates:
                continue
            confirmation = next((one for one in reversed(judged) if one.kept and is_confirmation(one) and one.tags["of"] == of), None)
            audit = row if is_audit(row) else None
            if confirmation is not None or audit is not None:
                one = Kept(candidates[of], confirmation, audit)
                known[one.least[0]] = one
    marked = 0
    for name in results.SETS:
        for row in results.recorded(name):
            if row["speedup"] in known and row["asked"] == row["precision"]:
                both = known[row["speedup"]].apart
                assert row.get("apart") == ([[one.speedup, *one.interval] for one in both] if both else None), row["workload"]
                assert row["interval"] == list(known[row["speedup"]].least[1])
            if row.get("apart"):
                assert row["speedup"] == min(one[0] for one in row["apart"]) in known, row["workload"]
                marked += both is not None
    assert marked >= 4


def test_what_is_said_of_counters_on_an_h100_is_what_was_measured(tmp_path):
    unpack(LEDGERS, tmp_path)
    long = Ledger(tmp_path / "ledgers" / "h100i_embedding_projection_equal-300s" / "ledger.jsonl").rows
    moves = {(one.name, move.quantity): move for row in long for one in row.hypotheses for move in one.moves}
    cores, fewer, shorter = (moves[key] for key in (
        ("split_products", "tensor-core share"), ("fold_embedding", "kernels"), ("split_products", "kernel time")))
    assert f"tensor cores went from {cores.before:.0f}% to {cores.after:.0f}%" in said("search")
    assert f"its kernels from {fewer.before:.0f} to {fewer.after:.0f}" in said("search")
    assert f"their time to {shorter.ratio:.2f}" in said("search") and ratio_of(cores.quantity, cores.before, cores.after) > 2
    assert fewer.result == shorter.result == "seen"


def test_what_is_said_of_counters_on_an_h200_is_what_was_measured(tmp_path):
    unpack(LEDGERS, tmp_path)

    def move(run: str, name: str, quantity: str):
        rows = Ledger(tmp_path / "ledgers" / run / "ledger.jsonl").rows
        return next(move for row in rows for one in row.hypotheses if one.name == name for move in one.moves if move.quantity == quantity)

    bytes_, cores = move("h200zp_depthwise_separable_conv_equal-480s", "separable_convolutions", "DRAM bytes"), move(
        "h200zp_mlp_activations_tf32-480s", "tf32", "tensor-core share")
    assert bytes_.result == cores.result == "seen" and (cores.before, cores.operators) == (0, "")
    assert f"DRAM bytes of the depthwise example went to {bytes_.ratio:.2f} of what they were" in said("search")
    assert f"the MLP's tensor cores at tf32 from 0% to {cores.after:.0f}% of the whole call" in said("search")


def test_what_is_said_of_the_workloads_beside_the_examples_is_what_was_measured(tmp_path):
    known = {row["workload"]: row for row in results.recorded("beside-h200")}
    assert set(known) == {*(file.stem for file in (ROOT / "bench" / "workloads").glob("*.py")), "train_mlp_step"}
    for name, passes in (("towers", "side_streams+cuda_graph"), ("streamed_weights", "resident_constants"), ("odd_sizes", "wide_outputs"),
                         ("waits", "remove_syncs+resident_constants"), ("own_loader", "loader_workers")):
        assert passes in known[name]["kept"] and known[name]["speedup"] > 3, name
    assert [name for name, row in sorted(known.items()) if row["kept"] == "nothing"] == ["train_mlp_step"]
    assert sorted(name for name, row in known.items() if row["over"] < 1) == ["decode", "pointwise"]
    assert "(errs as bf16)" in known["pointwise"]["rung"]
    decode, mode = known["decode"], "compile_reduce_overhead"
    assert decode["kept"] == "cuda_graph" and decode["rung"].startswith(mode) and len(decode["ladder_missing"]) == 1
    assert f"were screened at {decode['rung_speedup']:.2f}x afterwards, so that a minute left it at {decode['over']:.2f}x of the ladder " \
        f"[{decode['over_interval'][0]:.2f}, {decode['over_interval'][1]:.2f}]" in said()
    assert known["graphed"]["kept"] == "unwrap_compiled+compile_default+cuda_graph" and known["lengths"]["kept"] == "no_grad"
    assert f"runs at {float(known['train_mlp_step']['bound'].split('%')[0]):.0f}% of its float32 bound" in said()
    assert not known["own_loader"]["confirmed"] and 4e5 < known["own_loader"]["before_us"] < 6e5 and "half a second a call left" in said()
    unpack(LEDGERS, tmp_path)
    tried = {name: Ledger(tmp_path / "ledgers" / f"h200zr_{name}_equal-60s" / "ledger.jsonl").rows
             for name in ("waits", "streamed_weights")}
    assert "the call can't be captured" in next(row.reason for row in tried["waits"] if row.name == "cuda_graph")
    longer = judged(tmp_path, "h200zx_decode_equal-120s")[1]
    assert f"confirmed {longer.speedup:.2f}x [{longer.interval[0]:.2f}, {longer.interval[1]:.2f}]" in said()
    first, later = (Ledger(tmp_path / "ledgers" / f"h200zza_odd_sizes_bf16-{seconds}s" / "ledger.jsonl").rows for seconds in (120, 110))
    screened, refused = (row for row in first if row.name.startswith("pad_to_tiles+wide_outputs+") and (row.screen or row.verdict))
    assert f"screened `pad_to_tiles` beside the rest at {screened.screen.speedup:.2f}x" in said()
    assert "found nothing to change in the compiled graphs: pad_to_tiles" in refused.verdict.reasons[0]
    padded = next(row for row in later if is_confirmation(row) and "pad_to_tiles" in row.passes).verdict
    assert f"confirmed {padded.speedup:.2f}x [{padded.interval[0]:.2f}, {padded.interval[1]:.2f}] with it." in said()
    printed = re.findall(r"(\d+) rows: transposed (\S+) and (\S+) as fast, (\d) of 2 taken",
                         (ROOT / "tests" / "data" / "transposed_weights_h200.txt").read_text())  # of tests/gpu/test_layouts_gpu.py
    assert [(int(rows), int(taken)) for rows, _one, _other, taken in printed] == [(1, 0), (8, 0), (32, 1), (128, 2)]
    few, some, many = [float(time[:-1]) for line in printed[:2] for time in line[1:3]], printed[2], printed[3]
    assert f"it took none at 1 and 8 rows ({min(few):.2f}x to {max(few):.2f}x as fast transposed), one at 32 ({max(some[1:3])}), both at " \
        f"128 ({many[1]} and {many[2]})." in said()
    words = f"with 128 rows {many[1]} and {many[2]}, with 8 {min(printed[1][1:3])} to {max(printed[1][1:3])}"
    assert words in " ".join(transposed_weights.__doc__.split())
    pinned = next(row.screen.speedup for row in tried["streamed_weights"] if row.name == "pinned_copies")
    assert f"`pinned_copies` {pinned:.2f}x by its screen" in said()


def test_what_is_said_of_the_examples_is_what_was_measured(tmp_path):
    equal = rows_of("h200", "equal", 120.0)
    assert sum("split_" in row["kept"] for row in equal.values()) == 4 and "Four at equal precision rest on `split_pro" in said()
    for name, passes in (("lstm_sequence_encoder", "persistent_lstm"), ("depthwise_separable_conv", "separable_convolutions"),
                         ("conv_block", "cuda_graph"), ("conv_block", "compile_default")):
        assert passes in equal[name]["kept"].split("+"), name
    unpack(LEDGERS, tmp_path)
    now, both = (what_was_kept(tmp_path, f"h200{run}_sdpa_attention_equal-120s")[0] for run in ("zzb", "zv"))
    most = max(one.candidate_error / one.reference_error for row in (now.row, now.confirmation) for one in row.verdict.correctness.errors)
    assert f"Attention at equal precision errs at most {most:.2f} times as much as the original." in said()
    assert both.row.name == "split_attention+split_products+compile_default+cuda_graph" == now.row.name.replace("+c", "+compile_default+c")
    errors = [one for row in (both.row, both.confirmation) for one in row.verdict.correctness.errors]
    odd = sorted((one for one in errors if one.distribution == "constant_rows"), key=lambda one: one.candidate_error)
    usual = max(one.candidate_error / one.reference_error for one in errors if not one.distribution)
    times = " and ".join(f"{one.candidate_error / one.reference_error:.0f}" for one in odd)
    assert f"erred at most {usual:.2f} times as much on random inputs. On inputs whose rows are each one number it erred {times} times " \
        "as much in its two judgements" in said()
    assert f"({odd[-1].candidate_error:.1e} at most; the judge allows {min(one.limit for one in odd):.1e} there)".replace("e-0", "e-") \
        in said() and len(odd) == 2
    ends = [what_was_kept(tmp_path, f"h200{run}_depthwise_separable_conv_bf16-120s")[0] for run in ("zi", "zl", "zu", "zx", "zy", "zzb")]
    calls = [row.verdict.comparison for one in ends for row in (one.row, one.confirmation)]
    original, kept = (sorted(getattr(one, side).median_ns / 1e3 for one in calls) for side in ("reference", "candidate"))
    assert len(calls) == 12 and f"the original took {original[0]:.0f} to {original[-1]:.0f} us a call in the twelve judgements of six " \
        f"searches, what was kept {kept[0]:.0f} to {kept[-1]:.0f} us." in said()
    took: dict[str, list[float]] = {}
    for file in (tmp_path / "ledgers").glob("h200*-120s"):
        took.setdefault(Path(states.load(file).workload).stem, []).extend(
            one.comparison.reference.median_ns / 1e3 for one in judged(tmp_path, file.name) if one.comparison)
    usual = {name: statistics.median(took[name]) for name in equal}
    slow = ("depthwise_separable_conv", "conv_block", "sdpa_attention", "lstm_sequence_encoder")
    assert {name for name, row in equal.items() if row["before_us"] > 1.15 * usual[name]} == {*slow}
    us = [one[name] / scale for one in ({name: row["before_us"] for name, row in equal.items()}, usual)
          for name, scale in zip(slow, (1, 1, 1, 1e3), strict=True)]
    words = "At equal precision four rows have slow originals: the depthwise example's took {:.0f} us, the convolutions' {:.0f} us, " \
        "attention's {:.0f} us and the LSTM's {:.1f} ms, in all recorded judgements of two minutes' searches on an H200 {:.0f} us, " \
        "{:.0f} us, {:.0f} us and {:.1f} ms in the median."
    assert words.format(*us) in said()
    over_usual = [pages.geometric_mean(usual[name] / row["after_us"] for name, row in rows_of("h200", level, 120.0).items())
                  for level in ("equal", "tf32", "bf16")]
    assert "Over such medians what the rows keep comes to {:.2f}x in the mean, not {:.2f}x (tf32: {:.2f}x, bf16: {:.2f}x).".format(
        over_usual[0], pages.geometric_mean(row["speedup"] for row in equal.values()), *over_usual[1:]) in said()
    words = "over the median time of an original in all such searches the examples come to {:.2f}x, {:.2f}x and {:.2f}x"
    assert words.format(*over_usual) in said()
    lower = {(results.SETS[runs][1], name) for runs in ("h200", "h100") for name, row in rows_of(runs, "tf32", 120.0).items()
             for mode, level in row["ladder_lower"].items() if "max_autotune" in mode and level == "bf16"}
    assert lower == {(card, name) for card in ("H200", "H100") for name in ("mlp_activations", "sdpa_attention")}
    assert "as bfloat16 for the MLP and for attention on both cards" in said() and "For GPT-2 it was not." in said()
    lstm = [rows_of("h200", level, 120.0)["lstm_sequence_encoder"] for level in ("equal", "tf32", "bf16")]
    kept_ms = sorted(row["after_us"] / 1e3 for row in lstm)
    assert "{:.1f} ms a call at equal precision, {:.1f} and {:.1f} ms at tf32 and bf16; what was kept took {:.2f} to {:.2f} ms.".format(
        *(row["before_us"] / 1e3 for row in lstm), kept_ms[0], kept_ms[-1]) in said()
    days = {(name, level): row["day"] for level in ("equal", "tf32", "bf16") for name, row in rows_of("h200", level, 120.0).items()}
    runs = Counter(run_of(name, level) for name, level in days)
    assert runs == {"h200zza": 6, "h200zzb": 11, "h200zze": 4} and {*days.values()} == {"2026-11-30"}
    begun = {run: sorted(states.load(tmp_path / "ledgers" / f"{run}_{'_'.join(key)}-120s").started_utc for key in days
                         if run_of(*key) == run) for run in runs}
    assert [begun[run][0][11:13] for run in sorted(begun)] == ["00", "03", "13"]
    tried = [{one for row in Ledger(tmp_path / "ledgers" / f"{run_of(*key)}_{'_'.join(key)}-120s" / "ledger.jsonl").rows
              if row.ladder_row and row.screen is not None and row.screen.speedup for one in row.passes} for key in days]
    missing = [sum(mode not in found for found in tried) for mode in ("compile_max_autotune", "compile_max_autotune_no_cudagraphs")]
    assert "of the 21 searches of the examples at 120 s `max_autotune` in {}, without CUDA graphs in {}.".format(*missing) in said()
    assert "The 21 were all made on 30 November: six of them first (at equal precision the convolutions and the depthwise example; at " \
        "bf16 the convolutions, the embedding example, GPT-2 and attention), eleven three hours later, and four ten hours after those " \
        "(at equal precision the embedding example and GPT-2, at tf32 the convolutions, at bf16 the MLP), each time with later " \
        "code." in said()
    for name, level in days:
        ends = zip(*(one.interval for one in judged(tmp_path, f"{run_of(name, level)}_{name}_{level}-120s") if one.interval), strict=True)
        own = rows_of("h200", level, 120.0)[name]["interval"]
        assert all(end in known for end, known in zip(own, ends, strict=True)), "the row is of this ledger"
    further = [(name, level) for level in ("equal", "tf32", "bf16") for name, row in rows_of("h200", level, 120.0).items()
               if row["over"] > 1.01 * row["speedup"]]
    assert further == [("lstm_sequence_encoder", level) for level in ("tf32", "bf16")]
    capped = [pages.geometric_mean(min(row["over"], row["speedup"]) for row in rows_of("h200", level, 120.0).values())
              for level in ("tf32", "bf16")]
    words = "the LSTM is {:.2f}x the original at tf32 and {:.2f}x at bf16, and {:.2f}x and {:.2f}x a row"
    assert words.format(*(row[key] for key in ("speedup", "over") for row in lstm[1:])) in said()
    assert "counted as the former, the means over the ladder there would be {:.2f}x and {:.2f}x.".format(*capped) in said()
    rest = [row for name, row in equal.items() if name != "lstm_sequence_encoder"]
    assert "Without the LSTM the means at equal precision are {:.2f}x and {:.2f}x.".format(
        *(pages.geometric_mean(row[key] for row in rest) for key in ("speedup", "over"))) in said()


def test_what_is_said_of_examples_that_are_compiled_already_is_what_was_measured(tmp_path):
    known = {row["workload"].removesuffix("_max_autotune"): row for row in results.recorded("compiled-h200")}
    assert len(known) == 3 and all(row["confirmed"] and row["device_name"] == "NVIDIA H200" for row in known.values())
    gains = [f"{known[name]['speedup']:.2f}x" for name in ("mlp_activations", "sdpa_attention", "conv_block")]
    assert "the MLP comes to {} over that, attention to {}, the convolutions to {}, all confirmed".format(*gains) in said()
    for name, word in (("mlp_activations", "split_products"), ("sdpa_attention", "split_attention"), ("conv_block", "few_channel_conv")):
        assert word in known[name]["kept"]
    assert not any(float(row[key].split("%")[0]) > 100 for row in known.values() for key in ("bound", "bound_after"))
    assert all(row["over"] is None for row in known.values())
    best = [(known[name]["rung"], known[name]["rung_speedup"]) for name in ("mlp_activations", "sdpa_attention", "conv_block")]
    assert [rung for rung, _ in best] == ["compile_reduce_overhead (screened only)", "no_grad (screened only)", "eager (the original)"]
    assert f"the best are `compile_reduce_overhead` for the MLP ({best[0][1]:.2f}x) and `no_grad` for attention " \
        f"({best[1][1]:.2f}x)." in said()
    unpack(LEDGERS, tmp_path)
    took = [states.load(one).baseline_s for one in (tmp_path / "ledgers").glob("h200zb_*_max_autotune_equal-120s")]
    assert len(took) == 3 and f"compilation included, took {min(took):.0f} to {max(took):.0f} s." in said()
    rows = Ledger(tmp_path / "ledgers" / "h200j_mlp_max_autotune_equal-120s" / "ledger.jsonl").rows
    kept = next(row.verdict for row in reversed(rows) if row.kept and row.verdict is not None)
    assert f"took {kept.comparison.reference.median_ns / 1e6:.1f} ms a call by the judge" in said()
    assert "kept `split_products` without gradients, {:.0f} us, {:.1f}x [{:.1f}, {:.1f}].".format(
        kept.comparison.candidate.median_ns / 1e3, kept.speedup, *kept.interval) in said()
    alone, split = (next(row.screen.speedup for row in rows if row.name == name and row.screen and row.screen.speedup)
                    for name in ("unwrap_compiled", "split_products"))
    assert f"by the screen {alone:.1f}x without gradients alone, {split:.1f}x with `split_products`." in said()
    screened = next(row.screen.reference_ns for row in rows if row.name == "split_products" and row.screen)
    assert f"(by the judge their middle half is {kept.comparison.reference.iqr_ns / 1e6:.1f} ms wide) and took {screened / 1e6:.1f} ms " \
        "in the screen's process" in said()


def test_what_is_said_of_kernelbench_is_what_was_measured(tmp_path):
    equal, tf32 = rows_of("kernelbench-h200", "equal", 120.0), rows_of("kernelbench-h200", "tf32", 60.0)
    split = [row for row in equal.values() if "split_" in row["kept"]]
    assert len(split) == 10 and f"the ladder gives at most {max(row['rung_speedup'] for row in split):.2f}x." in said()
    own = [next(row for name, row in equal.items() if word in name) for word in ("LayerNorm", "NewGelu", "CrossEntropy")]
    assert "they gain {:.2f}x, {:.2f}x and {:.2f}x over the ladder by `direct_calls`".format(*(row["over"] for row in own)) in said()
    assert all("direct_calls" in row["kept"] for row in own) and "inductor_cooperative_reductions" in own[-1]["kept"]
    assert "fuse_norms" in own[0]["kept"] and "inductor_fuse_more" in own[1]["kept"]
    assert "the first with `fuse_norms`, the second with `inductor_fuse_more` and the last with" in said()
    ended = sorted(row["used_s"] for row in equal.values() if row["kept"] == "nothing")
    assert [name.split("_")[1] for name in sorted(equal) if equal[name]["kept"] == "nothing"] == ["12", "62", "6"]
    assert f"two of those searches ended by themselves, after {ended[0]:.0f} and {ended[1]:.0f} s;" in said()
    every = [row for rows in results.groups("kernelbench-h200").values() for row in rows]
    below = [row for row in every if row["over"] is not None and row["over"] < 0.995]
    assert f"Of all {len(every)} searches on that card (18 of 60 s at equal precision among them) " \
        f"{len(below)} are below the ladder by half a percent or more, eight of" in said()
    assert sum("max_autotune" in row["rung"] for row in below) == 8 and len(results.groups("kernelbench-h200")["equal", 60.0]) == 18
    again = {name: row["warm"] for name, row in equal.items() if row["kept"] != "nothing"}
    late = [name for name in again if again[name]["share"] is None]
    slow = {name: one["share"] for name, one in again.items() if one["share"] and one["share"] > 1 / 3}
    longest = ("level1_7_", "level1_1_", "level1_86_", "level1_88_")
    own = [next(one for name, one in again.items() if problem in name) for problem in longest]
    took = sorted(one["warm_s"] for one in own)
    assert {*slow.values()} == {one["share"] for one in own} and (
        "four take more than a third: the products of 32768 x 64 ({:.2f}) and of 4096 x 4096 ({:.2f}), the depthwise separable convolution "
        "({:.2f}) and the GELU ({:.2f}): they took {:.0f} to {:.0f} s to the result, nearly all of it one judgement.").format(
            *(one["share"] for one in own), took[0], took[-1]) in said()
    shares, whole = (pages.geometric_mean(one[key] for one in again.values() if one[key]) for key in ("share", "whole_share"))
    assert f"In the mean it takes {shares:.2f} of it" in said() and f"which the second run makes again, it is {whole:.2f}." in said()
    assert sum(one["whole_share"] > 1 / 3 for one in again.values() if one["whole_share"]) == 6
    assert "Six take more than a third with it." in said()
    narrow = rows_of("kernelbench-h200", "bf16", 60.0)
    assert sum(narrow[name]["speedup"] < 0.95 * row["speedup"] for name, row in equal.items()) == 3
    fewer = {name.split("_")[-1] for name, row in equal.items() if tf32[name]["speedup"] < 0.95 * row["speedup"]}
    assert fewer == {"LayerNorm", "AlexNet"}
    assert "in half the time three of them kept less for bf16 by more than 5%, and two for tf32 (LayerNorm and AlexNet). (Of the three " \
        "one, LeNet-5, was confirmed with 3.14x in a minute of later code, without a ladder beside it.)" in said()
    minute = [row["warm"] for row in rows_of("kernelbench-h200", "equal", 60.0).values() if row.get("warm") and row["warm"]["cold_s"]]
    reached = [one["share"] for one in minute if one["share"]]
    assert (len(reached), len(minute)) == (9, 11)
    assert f"nine of 11 reached it in {pages.geometric_mean(reached):.2f} of the time, one of them in less " \
        "than a third (24 November)" in said() and sum(one < 1 / 3 for one in reached) == 1
    least = min(every, key=lambda row: row["over"] or 1.0)
    assert least == tf32["level3_5_AlexNet"] and least["kept"] == "nothing" and f"kept, {least['over']:.2f}x of the ladder" in said()
    assert not any("MobileNet" in row["workload"] for row in every)
    unpack(LEDGERS, tmp_path)
    goes = {run: {file.name.split("_kb_")[1].removesuffix("_equal-120s") for file in (tmp_path / "ledgers").glob(f"h200zz{run}_kb_*")}
            for run in "cde"}
    assert {"_".join(name.split("_")[:2]) for name in equal} == goes["c"] | goes["d"] | goes["e"]
    assert [len(goes["c"]), len(goes["d"] - goes["e"]), len(goes["e"])] == [5, 10, 5]
    assert "KernelBench's at equal precision, 120 s, are of that day too: five, then ten, then five (level1/1, 6, 7, 62 and 86), each " \
        "time with later code." in said() and goes["e"] == {f"level1_{number}" for number in (1, 6, 7, 62, 86)}
    later = judged(tmp_path, "h200zl_kb_level3_4_bf16-60s_no_ladder")[-1]
    assert f"{later.speedup:.2f}" == "3.14" and later.verdict == "FASTER"
    undecided = judged(tmp_path, "h200zzd_kb_level1_12_equal-120s")
    assert "that of the elementwise product spent its time on three judgements, each undecided." in said()
    assert [one.verdict for one in undecided] == ["AMBIGUOUS"] * 3 and ended[-1] > 110
    first = [one.speedup for one in judged(tmp_path, "h200zr_kb_level1_7_Matmul_with_small_K_dimension__equal-120s")]
    assert not late and f"All {len(again)} came to the same result" in said()
    assert f"lower than the {first[0]:.2f}x and {first[1]:.2f}x of the first run's judgements." in said() and len(first) == 2
    cut = next(row for row in Ledger(tmp_path / "ledgers" / "h200zk_kb_level3_5_tf32-60s" / "ledger.jsonl").rows
               if row.reason.startswith("not judged: the time was up"))
    assert f"was ended after {cut.elapsed_s:.0f} s" in said() and "make inputs" in cut.reason


def narrower(name: str) -> bool:
    return CATALOGUE[name].precision != "equal"


def test_what_is_said_of_passes_that_earned_nothing_is_what_ablation_saw(tmp_path):
    shown = [row for key in results.SHOWN for row in results.groups("h200")[key]]
    idle = {(row["workload"], row["asked"]): row["idle"] for row in shown if row["idle"]}
    assert len(shown) == 21 and idle == {("lstm_sequence_encoder", "bf16"): ["compile_default"], ("conv_block", "tf32"): ["fold_linear_bn"]}
    unpack(LEDGERS, tmp_path)
    name = "persistent_lstm+compile_default+cuda_graph without compile_default"
    found = screens(tmp_path, "h200zzb_lstm_sequence_encoder_bf16-120s")[name]
    folded = "fold_linear_bn+compile_default+cuda_graph"
    rest = screens(tmp_path, "h200zze_conv_block_tf32-120s")[f"{folded} without fold_linear_bn"]
    whole, without = (one.speedup for one in judged(tmp_path, "h200zze_conv_block_tf32-120s")[:2])
    assert "Two of these 21 keep a pass that earned nothing when it was dropped: `compile_default` of the LSTM at bf16 " \
        f"({found:.2f}x in turns, after the whole was judged, when there was no time to judge it without), and `fold_linear_bn` of the " \
        f"convolutions at tf32 ({rest:.2f}x in turns; by the judge {whole:.2f}x with it and {without:.2f}x without, which is more than a " \
        "tenth apart)." in said() and whole > ablation.APART * without
    pairs = [(what_was_kept(tmp_path, f"{before}_{name}_{level}-120s"), what_was_kept(tmp_path, f"h200zy_{name}_{level}-120s"))
             for name, level in NIGHT
             for before in ["h200zv" if level == "equal" or (name, level) == ("depthwise_separable_conv", "tf32") else "h200zx"]]
    assert [sum(bool(side[1]) for side in sides) for sides in zip(*pairs, strict=True)] == [8, 1] and len(pairs) == 11
    share = [after.median_ns / before.median_ns for before, after in ((
        (kept.apart[0] if kept.apart else kept.verdict).comparison.candidate for kept, _ in pair) for pair in pairs)]
    assert "Eleven searches of that night were made earlier that day too: those had left such a pass in eight, the later ones in one, " \
        f"and what the later ones keep takes {min(share):.2f} to {max(share):.2f} of the time of that, " \
        f"{pages.geometric_mean(share):.2f} in the mean." in said()
    counts = Counter[str]()
    for name, level in ((row["workload"], row["asked"]) for row in shown):
        ledger = Ledger(tmp_path / "ledgers" / f"{run_of(name, level)}_{name}_{level}-120s" / "ledger.jsonl").rows
        kept = what_was_kept(tmp_path, f"{run_of(name, level)}_{name}_{level}-120s")[0].row
        dropped = ablation.tried(ledger, kept)
        for one in set(kept.passes) - ablation.NEVER:
            told = dropped[one].tags["earned"] if one in dropped else "unknown"
            seen = "none" if ablation.by_screens(ledger, kept, one) is None else "clear" if ablation.is_clear(ledger, kept, one) else "open"
            counts[told if told != "unknown" else seen] += 1
    words = "Of the {} passes that all 21 keep {} earned something when they were dropped, and {} were not dropped in time: of {} of " \
        "these the screens say that they do (1.1 times as fast with it), of {} they leave it in doubt, of {} they say nothing."
    late = [counts[word] for word in ("clear", "open", "none")]
    assert words.format(counts.total(), counts["yes"], sum(late), *late) in said()
    wide = {row["workload"] for row in shown if row["asked"] == "tf32" and not any(map(narrower, row["kept"].split("+")))}
    assert wide == {"conv_block", "depthwise_separable_conv"}
    assert "at tf32 nothing narrower is kept for the convolutions and the depthwise example." in said()
    assert all(f"({', '.join(names)} earned nothing)" in pages.table(shown) for names in idle.values())


def test_what_is_said_of_passes_in_doubt_and_of_trials_that_end_a_search_is_what_was_seen(tmp_path):
    unpack(LEDGERS, tmp_path)
    said_of = " ".join((ROOT / "docs" / "search.md").read_text().split())

    seen, whole = screens(tmp_path, "h200zx_mlp_activations_bf16-120s"), "bf16+freeze_weights+compile_default+cuda_graph"
    words = "`freeze_weights`, {:.2f}x with it and {:.2f}x without by the screens, {:.2f}x in turns"
    assert words.format(seen[whole], seen["bf16+compile_default+cuda_graph"], seen[f"{whole} without freeze_weights"]) in said_of
    later, before = screens(tmp_path, "h200zx_mlp_activations_tf32-120s"), screens(tmp_path, "h200zt_mlp_activations_tf32-120s")
    assert not any("scaled_fp16" in name for name in later)
    once, = (speedup for name, speedup in screens(tmp_path, "h200zy_mlp_activations_tf32-120s").items() if "scaled_fp16" in name)
    assert f"with `scaled_fp16`, which two minutes tried once, {once:.2f}x by its screen" in said()
    assert f"`scaled_fp16`, {before['scaled_fp16+tf32+cuda_graph'] / before['tf32+cuda_graph']:.2f}x, was never tried" in said_of
    rows = Ledger(tmp_path / "ledgers" / "h200zx_mlp_activations_tf32-120s" / "ledger.jsonl").rows
    tried = [row for row in rows if row.screen is not None and row.screen.status in ("timed", "hopeless") and "role" not in row.tags
             and row.verdict is None]
    assert sum(row.ladder_row for row in tried[3:15]) == 5 and "five of them were among the twelve" in said_of


def test_the_times_of_a_row_are_of_the_judgement_that_counts():
    apart = [row for name in results.SETS for row in results.recorded(name) if row.get("apart")]
    assert apart and all(row["before_us"] / row["after_us"] == pytest.approx(row["speedup"], rel=0.1) for row in apart)


def test_what_is_said_of_longer_budgets_is_what_was_measured(tmp_path):
    known = sorted((row for row in results.recorded("h200") if (row["workload"], row["asked"]) == ("conv_block", "equal")),
                   key=lambda row: row["budget_s"])
    assert [row["budget_s"] for row in known] == [60.0, 120.0, 180.0, 480.0] and all(row["confirmed"] for row in known)
    short, long = (rows_of("h200", "tf32", budget_s)["mlp_activations"] for budget_s in (120.0, 480.0))
    assert short["interval"][1] > long["interval"][0] and "scaled_fp16" in long["kept"] and "scaled_fp16" in short["kept"]
    unpack(LEDGERS, tmp_path)
    before = judged(tmp_path, "h200zy_mlp_activations_tf32-120s")[-1].speedup
    assert f"had come to {before:.2f}x in two minutes and to {long['speedup']:.2f}x in eight (with `scaled_fp16`," in said()
    originals = [rows_of("h200", "equal", budget_s)["depthwise_separable_conv"]["before_us"] for budget_s in (120.0, 480.0)]
    assert "differ by the original's time ({:.0f} and {:.0f} us).".format(*originals) in said()
    eight = known[-1]
    words = "Of the convolutions one, two, three and eight minutes kept what takes {:.0f}, {:.0f}, {:.0f} and {:.0f} us a call: their " \
        "figures differ by the original's time ({:.0f}, {:.0f}, {:.0f} and {:.0f} us)"
    assert words.format(*(row[key] for key in ("after_us", "before_us") for row in known)) in said()
    assert [row["rung"] for row in known] == [*["compile_reduce_overhead"] * 3, "compile_max_autotune"]
    assert ["fuse_conv_relu" in row["kept"].split("+") for row in known] == [False, False, True, True]
    earned = [seen for budget_s in (180, 480) for name, seen in screens(tmp_path, f"h200zze_conv_block_equal-{budget_s}s").items()
              if name.endswith(" without fuse_conv_relu")]
    assert f"which three and eight minutes kept ({min(earned):.2f}x and {max(earned):.2f}x in turns)" in said()
    seen = Ledger(tmp_path / "ledgers" / "h200zzd_conv_block_equal-180s" / "ledger.jsonl").rows
    largest = max(row.screen.speedup for row in seen if row.screen is not None and row.screen.speedup is not None)
    first, kept = judged(tmp_path, "h200zzd_conv_block_equal-180s")[0], what_was_kept(tmp_path, "h200zzd_conv_block_equal-180s")[0]
    own = (kept.apart[0] if kept.apart else kept.verdict).comparison.candidate
    assert f"An earlier search of three minutes on that day ({own.median_ns / 1e3:.0f} us) went on from what it " \
        f"had screened third, at {largest:.2f}x (by the judge {first.speedup:.2f}x), and gave up after 16 trials without a larger ratio, " \
        "with `fuse_conv_relu` untried;" in said()
    untried, = (row.reason for row in seen if "the last 16 trials" in row.reason)
    assert "fuse_conv_relu+compile_default+cuda_graph (expected" in untried
    assert {row["day"] for row in known} == {"2026-11-30"}
    assert "the convolutions' are of 30 November, the other budgets of eight minutes of the 28th." in said()
    others = [row for row in results.recorded("h200") if row["budget_s"] > 180 and row["workload"] != "conv_block"]
    assert len(others) == 3 and all(row["day"] == "2026-11-28" for row in others)
    bought = {one["minutes"]: one["gain"] for one in eight["bought"]}
    assert f"it held: {bought['3']} was the best after three, and what was kept was confirmed with {eight['speedup']:.2f}x." in said()
    assert f"That search ended after {eight['used_s']:.0f} s" in said()


def test_what_is_said_of_two_cpu_cores_is_what_was_measured(tmp_path):
    unpack(LEDGERS, tmp_path)

    def runs(number: int) -> dict[str, Path]:
        return {file.name.split("_", 1)[1].removesuffix("_equal-60s"): file for file in (tmp_path / "ledgers").glob(f"cpu{number}_*")}

    def verdicts(number: int, workload: str, name: str) -> list:
        return [row.verdict for row in Ledger(runs(number)[workload] / "ledger.jsonl").rows if row.verdict and name in row.name]

    gpt2, = verdicts(16, "gpt2", "compile_default")
    words = "`compile_default` was judged {:.2f}x [{:.2f}, {:.2f}] on the EPYC, less than that much noise would reliably show ({:.1f}%)"
    assert gpt2.verdict == "AMBIGUOUS"
    assert words.format(gpt2.speedup, *gpt2.interval, gpt2.comparison.smallest_detectable_effect_pct) in said()
    compiled, heap = ([f"{one.speedup:.2f}x" for one in verdicts(number, "lstm_sequence_encoder", name)]
                      for number, name in ((16, "compile_default"), (19, "keep_heap")))
    again = verdicts(20, "lstm_sequence_encoder", "keep_heap")[-1].speedup
    before = verdicts(31, "lstm_sequence_encoder", "no_grad")[-1].speedup
    one, other = verdicts(33, "lstm_sequence_encoder", "no_grad")
    assert "the LSTM's {}, and by its confirmation {}, which is none; on the Xeon its `keep_heap` {}, by its confirmation {}, and " \
        "another time {:.2f}x; and `no_grad` alone, kept with {:.2f}x one time, was {:.2f}x [{:.2f}, {:.2f}] three hours later, and {} " \
        "[{:.2f}, {:.2f}] by its confirmation".format(
            *compiled, *heap, again, before, one.speedup, *one.interval, other.verdict, *other.interval) in said()
    below = {row["workload"]: row for row in results.recorded("cpu") if row["over"] < 0.995}
    assert set(below) == {"conv_block", "gpt2"} and "(undecided)" in below["gpt2"]["rung"]
    assert all(row["rung"].startswith("compile_max_autotune_no_cudagraphs") for row in below.values())
    assert "the convolutions ({:.2f}x) and GPT-2 ({:.2f}x, undecided) are below the ladder".format(
        *(below[name]["over"] for name in ("conv_block", "gpt2"))) in said()
    heaps = [{row["workload"] for row in results.recorded(name) if "keep_heap" in row["kept"]} for name in ("cpu-xeon", "cpu")]
    assert heaps == [set(), {"conv_block", "sdpa_attention"}]
    assert "two rows of the EPYC kept (the convolutions and attention), gave them nothing" in said()
    rest = pages.geometric_mean(1.0 if "keep_heap" in row["kept"] else row["speedup"] for row in results.recorded("cpu"))
    assert f"without them the EPYC's mean is {rest:.2f}x." in said()
    known = {number: {name: Ledger(file / "ledger.jsonl").rows for name, file in runs(number).items()}
             for number in (20, 22, 23, 26, 31, 32, 34, 35, 36, 37, 38, 39, 40, 41)}
    gains = [[of_a_minute(rows) for rows in found.values()] for found in known.values()]
    means, faster = (sorted(map(of, gains)) for of in (pages.geometric_mean, lambda found: sum(gain > 1.0 for gain in found)))
    assert {len(found) for found in gains} == {7} and (faster[0], faster[-1]) == (4, 7)
    assert f"came to {means[0]:.2f}x to {means[-1]:.2f}x in the mean, four to seven of them faster." in said()
    tried = [found["mlp_activations"] for found in known.values()
             if any("freeze_weights" in row.passes and row.screen is not None for row in found["mlp_activations"])]
    late = tried.pop(-3)
    assert late is known[39]["mlp_activations"] and any(
        row.reason.startswith("not judged: the time was up") and f"{row.screen.speedup:.2f}" == "1.26" for row in late if row.screen)
    frozen = [of_a_minute(rows, "freeze_weights") for rows in tried]
    assert min(frozen) > 1.0 and len({states.load(runs(number)["gpt2"]).device_name for number in known}) == 2
    assert len(known) == 14 and "fourteen recordings of the same seven" in said()
    below = {row["workload"]: (f"{row['over']:.2f}x", row["rung"]) for row in results.recorded("cpu-xeon") if row["over"] < 0.995}
    (gpt2, of_gpt2), (lstm, of_lstm) = (below.pop(name) for name in ("gpt2", "lstm_sequence_encoder"))
    assert not below and f"On the Xeon GPT-2 is ({gpt2}), below the same, and the LSTM ({lstm}, undecided), below `no_grad`." in said()
    assert of_gpt2.startswith("compile_max_autotune_no_cudagraphs") and of_lstm.startswith("no_grad (undecided)")
    assert len(known) - len(frozen) - 1 == 3
    assert f"`freeze_weights` made the MLP {min(frozen):.2f}x to {max(frozen):.2f}x as fast in {len(frozen)} of them, and was not tried " \
        "in three. In another it was 1.26x by its screen" in said()

"""What docs/search.md says of measured runs, its tables and docs/predictions.md, against the recorded rows and ledgers."""

from __future__ import annotations

import json
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from archives import unpack
from bench_scripts import load
from kernelwright.model.verdict import Experiment
from kernelwright.optimize import ablation, budget, strategy
from kernelwright.optimize import state as states
from kernelwright.optimize.confirm import CONFIRMATION, LONGER, OF, ROLE, is_audit, is_confirmation
from kernelwright.optimize.ending import Kept
from kernelwright.optimize.hypothesis import ratio_of
from kernelwright.optimize.ledger import Ledger

ROOT = Path(__file__).resolve().parents[2]
LEDGERS = ROOT / "tests" / "data" / "ledgers.tar.xz"

pages = load("optimize_page")
predictions = load("predictions")


def judged(folder: Path, name: str) -> list:
    """The verdicts of one recorded run, in order."""
    return [row.verdict for row in Ledger(folder / "ledgers" / name / "ledger.jsonl").rows if row.verdict is not None]


def begun(folder: Path, runs: str, precision: str) -> list[str]:
    """When each recorded run with this prefix began, in order."""
    return sorted(states.load(one).started_utc for one in (folder / "ledgers").glob(f"{runs}_*_{precision}-120s"))


def days(folder: Path, rows_of: list[dict]) -> list[tuple[str, int]]:
    """(day, how many of these searches of KernelBench on the H200 are of it), the most frequent first: of each its latest ledger."""
    found = []
    for row in rows_of:
        name = f"{'_'.join(row['workload'].split('_')[:2])}_{row['precision']}-{row['budget_s']:g}s"
        latest = max((folder / "ledgers").glob(f"h200*_kb_{name}"), key=lambda one: states.load(one).started_utc)
        known = {one.verdict.speedup for one in Ledger(latest / "ledger.jsonl").rows if one.verdict is not None}
        assert row["kept"] == "nothing" or row["speedup"] in known, name
        found.append(states.load(latest).started_utc[:10])
    return Counter(found).most_common()


def same_half_hour(folder: Path, runs: str, precision: str) -> int:
    """How many recorded runs with this prefix there are; all begun within half an hour."""
    times = begun(folder, runs, precision)
    assert datetime.fromisoformat(times[-1]) - datetime.fromisoformat(times[0]) < timedelta(minutes=30)
    return len(times)


def before(folder: Path, precision: str, runs: str) -> float:
    """Geometric mean of what the latest of these runs of each of the seven kept in 120 s; all are confirmed."""
    files = sorted((one for one in (folder / "ledgers").glob(f"{runs}_*_{precision}-120s") if "_kb_" not in one.name),
                   key=lambda one: states.load(one).started_utc)
    gains = []
    for file in {one.name.split("_", 1)[1]: one for one in files}.values():
        rows_of = Ledger(file / "ledger.jsonl").rows
        last = next(row for row in reversed(rows_of) if row.kept and is_confirmation(row))
        own = next(row for row in reversed(rows_of) if row.name == last.tags[OF] and row.verdict is not None)
        gains.append(Kept(own, last).least[0])
    assert len(gains) == 7
    return pages.geometric_mean(gains)


def of_the_examples(precision: str) -> tuple[dict, str]:
    """(workload -> its row of 120 s on the H200, what docs/search.md says)."""
    rows_of = json.loads((ROOT / "docs" / "search-runs" / "h200.json").read_text())["rows"]
    known = {row["workload"]: row for row in rows_of if (row["asked"], row["budget_s"]) == (precision, 120.0)}
    return known, " ".join((ROOT / "docs" / "search.md").read_text().split())


def test_the_pages_in_the_docs_are_those_of_the_recorded_runs(tmp_path):
    unpack(LEDGERS, tmp_path)
    assert predictions.main([str(tmp_path / "ledgers"), "--out", str(tmp_path / "page.md")]) == 0
    assert (tmp_path / "page.md").read_text() == (ROOT / "docs" / "predictions.md").read_text()
    measured = json.loads((ROOT / "docs" / "search-runs" / "h200.json").read_text())["rows"]
    assert pages.table(measured) == (ROOT / "docs" / "search-runs" / "h200.md").read_text()
    whole, short = ([row for row in measured if (row["precision"], row["budget_s"]) == key] for key in (("equal", 120.0), ("equal", 60.0)))
    said = " ".join((ROOT / "docs" / "search.md").read_text().split())
    gains, over = [row["speedup"] for row in whole], [row["over"] for row in whole]
    assert len(whole) == 7 and len(short) == 5 and None not in over
    means = [f"{pages.geometric_mean(values):.2f}x" for values in (gains, over)]
    assert f"geometric mean {means[0]} over the original and {means[1]} over the best row" in said
    assert f"the least {min(gains):.2f}x and {min(over):.2f}x, all confirmed but the LSTM." in said
    assert [row["workload"] for row in whole if not row["confirmed"]] == ["lstm_sequence_encoder"]
    assert f"60 s give {pages.geometric_mean(row['speedup'] for row in short):.2f}x on five of them" in said
    assert sum("split_" in row["kept"] for row in whole) == 4
    by_name = {row["workload"]: row for row in whole}
    for words, name in (("GPT-2 {0}, {1} over that row", "gpt2"), ("the embedding example {0}, {1} over it", "embedding_projection"),
                        ("the MLP {0}, {1} over it, att", "mlp_activations"),
                        ("attention {0}, {1} over it. The", "sdpa_attention"),
                        ("The LSTM comes to {0} (`persistent_lstm`, compiled, in a CUDA graph", "lstm_sequence_encoder"),
                        ("the depthwise example to {0}, {1} over it (`separable", "depthwise_separable_conv"),
                        ("the convolutions to {0}, {1} over it (`fold_linear_bn`, compiled, in a CUDA graph", "conv_block")):
        assert words.format(*(f"{by_name[name][key]:.2f}x" for key in ("speedup", "over"))) in said, words
    apart = by_name["depthwise_separable_conv"]["apart"]
    assert f"(`separable_convolutions`; its confirmation had {max(one[0] for one in apart):.2f}x)" in said
    assert f"seven came to {before(tmp_path, 'equal', 'h200z[cij]'):.2f}x the day before, one machine a search, all confirmed." in said
    errors = [one for verdict in judged(tmp_path, "h200zl_sdpa_attention_equal-120s") for one in verdict.correctness.errors]
    odd = sorted((one for one in errors if one.distribution == "constant_rows"), key=lambda one: one.candidate_error)
    usual = max(one.candidate_error / one.reference_error for one in errors if not one.distribution)
    assert f"Attention errs at most {usual:.2f} times as much" in said
    times = " and ".join(f"{one.candidate_error / one.reference_error:.0f}" for one in odd)
    assert f"in its two judgements {times} times on rows of one value ({odd[-1].candidate_error:.1e} at most; the judge allows " \
        f"{min(one.limit for one in odd):.1e} there)".replace("e-0", "e-") in said and len(odd) == 2
    begun_at = [datetime.fromisoformat(one) for one in begun(tmp_path, "h200zl", "equal")]
    assert len(begun_at) == 7 and begun_at[-1] - begun_at[0] < timedelta(minutes=15)
    assert "120 s each, all seven within fifteen minutes on one machine" in said


def test_what_is_said_of_the_examples_at_bf16_is_what_was_measured(tmp_path):
    unpack(LEDGERS, tmp_path)
    known, said = of_the_examples("bf16")
    means, least = ([f"{pick(row[key] for row in known.values()):.2f}x" for key in ("speedup", "over")]
                    for pick in (pages.geometric_mean, min))
    times = [datetime.fromisoformat(one) for one in begun(tmp_path, "h200zl", "bf16")]
    assert len(times) == len(known) == 7 and times[-1] - times[0] < timedelta(minutes=15)
    assert f"all seven within fifteen minutes on the same machine: geometric mean {means[0]} over the original and {means[1]} over the " \
        f"best row of that ladder, the least {least[0]} and {least[1]}, all confirmed but the convolutions and the MLP." in said
    assert {name for name, row in known.items() if not row["confirmed"]} == {"conv_block", "mlp_activations"}
    assert f"The same seven came to {before(tmp_path, 'bf16', 'h200zi'):.2f}x the day before, all confirmed." in said
    for words, name in (("The LSTM comes to {0:.2f}x (`persistent_lstm`), GPT-2", "lstm_sequence_encoder"),
                        ("GPT-2 to {0:.2f}x, {1:.2f}x over that row (`wide_outputs`)", "gpt2"),
                        ("the embedding example to {0:.2f}x, {1:.2f}x over it (`wide_outputs` and `direct_calls`, with",
                         "embedding_projection"),
                        ("the MLP to {0:.2f}x, {1:.2f}x over it, attention to 5", "mlp_activations"),
                        ("attention to {0:.2f}x, {1:.2f}x over it, the depthwise example to 4", "sdpa_attention"),
                        ("the depthwise example to {0:.2f}x, {1:.2f}x over it (`separable_convolutions`), the", "depthwise_separable_conv"),
                        ("the convolutions to {0:.2f}x, {1:.2f}x over it (timed beside it; judged apart, that row has {2:.2f}x).",
                         "conv_block")):
        assert words.format(*(known[name][key] for key in ("speedup", "over", "rung_speedup"))) in said, words
    embedding = Ledger(tmp_path / "ledgers" / "h200zl_embedding_projection_bf16-120s" / "ledger.jsonl").rows
    without = next(row.screen.speedup for row in embedding if row.tags.get("without") == "direct_calls")
    assert f"without `direct_calls` a call took {without:.2f} times as long" in said
    calls = [[(getattr(one.comparison, side).median_ns / 1e3) for side in ("reference", "candidate")]
             for run in ("h200zi", "h200zl") for one in judged(tmp_path, f"{run}_depthwise_separable_conv_bf16-120s")[-2:]]
    assert "took {:.0f} us a call the day before, and {:.0f} and {:.0f} us in the two judgements here; what was kept {:.0f}, {:.0f} and " \
        "{:.0f} us.".format(*(one[side] for side in (0, 1) for one in calls[1:])) in said


def test_what_is_said_of_the_time_held_back_for_confirmations_is_what_the_ledgers_say(tmp_path):
    unpack(LEDGERS, tmp_path)
    said = " ".join((ROOT / "docs" / "search.md").read_text().split())
    cut = [row.elapsed_s for file in (tmp_path / "ledgers").glob("h200zl_*-120s/ledger.jsonl") for row in Ledger(file).rows
           if row.tags.get(ROLE) == CONFIRMATION and row.status == "out_of_budget"]
    assert f"The three that were not confirmed had {min(cut):.0f} to {max(cut):.0f} s for that" in said and len(cut) == 3
    found = []
    for file in (tmp_path / "ledgers").glob("h*/ledger.jsonl"):
        rows_of, total_s = Ledger(file).rows, states.load(file.parent).budget_s
        for row in (row for row in rows_of if row.tags.get(ROLE) == CONFIRMATION and row.status == "judged" and LONGER not in row.tags):
            done = [one for one in rows_of if one.index < row.index and ROLE not in one.tags]
            best = next(one for one in reversed(done) if one.name == row.tags[OF] and one.verdict is not None)
            if best.screen is not None:
                ending_s = 2 * budget.ENDING_S
                first = min((one for one in done if one.status == "judged"), key=lambda one: one.index)
                own_s = best.elapsed_s + (budget.reference_start_s(done) if first.name != best.name else 0.0)
                earlier_s = min(budget.SCREENED_MARGIN * own_s, budget.CONFIRM_SHARE * total_s) - ending_s
                found.append([row.elapsed_s <= held_s for held_s in
                              (earlier_s, budget.confirmation_reserve_s(best, done, total_s) - ending_s)])
    assert "Of the {} confirmations of screened candidates that came to an end in the ledgers of GPUs {} took no longer than what was " \
        "held back so, {} no longer than what is now.".format(len(found), *(sum(column) for column in zip(*found, strict=True))) in said


def test_what_is_said_of_the_examples_at_tf32_is_what_was_measured(tmp_path):
    unpack(LEDGERS, tmp_path)
    known, said = of_the_examples("tf32")
    means, least = ([f"{pick(row[key] for row in known.values()):.2f}x" for key in ("speedup", "over")]
                    for pick in (pages.geometric_mean, min))
    assert f"tf32 on the H200, all seven on one day: geometric mean {means[0]} over the original and {means[1]} over the best row, the " \
        f"least {least[0]} and {least[1]}, all confirmed." in said
    assert len(known) == 7 and all(row["confirmed"] for row in known.values())
    assert {name for name, row in known.items() if pages.is_ladder_incomplete(row)} == {"gpt2", "depthwise_separable_conv"}
    assert {one[:10] for one in begun(tmp_path, "h200z[hi]", "tf32")} == {"2026-11-27"}
    for words, name in (("The LSTM comes to {0} (`persistent_lstm`), the embedding example to", "lstm_sequence_encoder"),
                        ("the embedding example to {0}, {1} over the best row (`fold", "embedding_projection"),
                        ("GPT-2 to {0}, {1} over those of its rows that there was time for, attention", "gpt2"),
                        ("attention to {0}, {1} over it (`scaled_fp16_attention`), the MLP", "sdpa_attention"),
                        ("the MLP to {0}, {1} over it, the depthwise", "mlp_activations"),
                        ("the depthwise example to {0}, {1} over it (one row missing), the convolutions", "depthwise_separable_conv"),
                        ("the convolutions to {0}, {1} over it. What is kept of these two and of the LSTM has", "conv_block")):
        assert words.format(*(f"{known[name][key]:.2f}x" for key in ("speedup", "over"))) in said, words
    wide = ("conv_block", "lstm_sequence_encoder", "depthwise_separable_conv")
    assert not any("tf32" in known[name]["kept"] for name in wide)
    screens = {}
    for name, with_it in zip(wide, ("", "persistent_lstm+", "separable_convolutions+"), strict=True):
        rows_of = Ledger(tmp_path / "ledgers" / f"h200zh_{name}_tf32-120s" / "ledger.jsonl").rows
        seen = {row.name: row.screen.speedup for row in rows_of if row.screen is not None and row.screen.speedup}
        for level in ("tf32+", ""):
            screens.setdefault(level, []).append(f"{seen[f'{with_it}compile_default+{level}cuda_graph']:.2f}x")
    assert "were screened with it at {}, {} and {}, without it at {}, {} and {}.".format(*screens["tf32+"], *screens[""]) in said
    rows_of = Ledger(tmp_path / "ledgers" / "h200zh_sdpa_attention_tf32-120s" / "ledger.jsonl").rows
    refused = [row for row in rows_of if row.verdict is not None]
    assert len(refused) == 5 and all("scaled_fp16_attention" in row.name and row.verdict.verdict == "FAILED" for row in refused)
    seen = [row.screen.speedup for row in refused]
    assert f"five finalists with `scaled_fp16_attention`, screened at {min(seen):.2f}x to {max(seen):.2f}x, were" in said


def test_what_is_said_of_examples_that_are_compiled_already_is_what_was_measured(tmp_path):
    found = json.loads((ROOT / "docs" / "search-runs" / "compiled-h200.json").read_text())["rows"]
    assert pages.table(found) == (ROOT / "docs" / "search-runs" / "compiled-h200.md").read_text()
    said = " ".join((ROOT / "docs" / "search.md").read_text().split())
    known = {row["workload"].removesuffix("_max_autotune"): row for row in found}
    assert len(known) == 3 and all(row["confirmed"] and row["device_name"] == "NVIDIA H200" for row in found)
    gains = [f"{known[name]['speedup']:.2f}x" for name in ("mlp_activations", "sdpa_attention", "conv_block")]
    assert f"the MLP comes to {gains[0]}, attention to {gains[1]}, the convolutions to {gains[2]} over that, all confirmed" in said
    for name, word in (("mlp_activations", "split_products"), ("sdpa_attention", "split_attention"), ("conv_block", "few_channel_conv")):
        assert word in known[name]["kept"]
    assert known["conv_block"]["candidates"] == 2 and "of the convolutions two candidates were looked at" in said
    assert not any(float(row[key].rstrip("%").split("%")[0]) > 100 for row in found for key in ("bound", "bound_after"))
    unpack(LEDGERS, tmp_path)
    took = [states.load(one).baseline_s for one in (tmp_path / "ledgers").glob("h200zb_*_max_autotune_equal-120s")]
    assert len(took) == 3 and f"took {round(min(took))} to {round(max(took))} s; of the convolutions" in said


def test_what_is_said_of_calls_from_end_to_end_is_what_was_measured(tmp_path):
    unpack(LEDGERS, tmp_path)
    said = " ".join((ROOT / "docs" / "search.md").read_text().split())
    for words, name in (("of the LSTM at bf16 {0} of {1}, of att", "h200za_lstm_sequence_encoder_bf16-120s"),
                        ("of attention at bf16 on an H100 {0} of {1}, of the conv", "h100za_sdpa_attention_bf16-120s"),
                        ("of the convolutions at equal precision in 480 s {0} of {1} (", "h200zj_conv_block_equal-480s")):
        found = [{row.condition: f"{row.speedup:.2f}x" for row in one.timings if row.speedup} for one in judged(tmp_path, name)]
        assert words.format(*next((one["end to end"], one["warm"]) for one in found if "end to end" in one)) in said, words


@pytest.mark.parametrize(("runs", "precision", "budget_s"), [
    ("h200", "equal", 60.0), ("h200", "equal", 120.0), ("h200", "bf16", 60.0), ("h200", "bf16", 120.0), ("h200", "tf32", 120.0),
    ("compiled-h200", "equal", 120.0), ("h100", "equal", 120.0), ("h100", "bf16", 120.0),
    ("h100", "tf32", 120.0),
    ("cpu", "equal", 60.0), ("cpu-xeon", "equal", 60.0),
    ("kernelbench-h200", "equal", 60.0), ("kernelbench-h200", "equal", 120.0), ("kernelbench-h200", "bf16", 60.0),
    ("kernelbench-h200", "tf32", 60.0),
    ("kernelbench-h100", "equal", 60.0), ("kernelbench-h100", "equal", 120.0)])
def test_the_short_table_is_what_was_measured(runs, precision, budget_s):
    rows_of = json.loads((ROOT / "docs" / "search-runs" / f"{runs}.json").read_text())["rows"]
    found = [row for row in rows_of if (row["precision"], row["budget_s"]) == (precision, budget_s)]
    over = [row["over"] for row in found if row["over"] is not None]
    processor = {"cpu": "EPYC", "cpu-xeon": "Xeon(R)"}.get(runs)
    card = "CPU" if processor else runs.split("-")[-1].upper()
    named = {"cpu": "small examples", "cpu-xeon": "small examples", "compiled-h200": "examples, compiled"}.get(
        runs, "KernelBench" if "kernelbench" in runs else "examples")
    assert {row["device_name"].split()[1] for row in found} == {processor or card}
    cells = [f"[{named}](search-runs/{runs}.md)", precision, f"{budget_s:g}", card, str(len(found)),
             f"{pages.geometric_mean(row['speedup'] for row in found):.2f}x, {min(row['speedup'] for row in found):.2f}x",
             "n/a" if not over else f"{pages.geometric_mean(over):.2f}x, {min(over):.2f}x" + (
                 "" if len(over) == len(found) else f" (of {len(over)})"),
             str(sum(pages.is_ladder_incomplete(row) for row in found)), str(sum(row.get("confirmed") is False for row in found)),
             f"{sum(row['used_s'] <= row['budget_s'] for row in found)} of {len(found)}"]
    assert f"| {' | '.join(cells)} |" in (ROOT / "docs" / "search.md").read_text().splitlines()


def test_what_is_said_of_ablations_is_so_in_the_ledgers(tmp_path):
    unpack(LEDGERS, tmp_path)
    found: list[str] = []
    for file in (tmp_path / "ledgers").glob("*/ledger.jsonl"):
        rows_of = Ledger(file).rows
        kept = next((row.tags.get("of", row.name) for row in reversed(rows_of) if row.kept), None)
        winner = next((row for row in reversed(rows_of) if row.name == kept and "role" not in row.tags), None)
        if winner is not None and (passes := set(ablation.to_drop(winner))):
            names = {winner.name, ablation.whole_of(winner)} - {None}
            tried = passes & {name for one in names for name in ablation.rows_of(rows_of, one)}
            found.append("whole" if tried == passes else "in part" if tried else "not")
    said = " ".join((ROOT / "docs" / "search.md").read_text().split())
    assert f"of {len(found)} winners of several passes in the ledgers of the [predictions](predictions.md) {found.count('whole')} were " \
        f"taken apart whole, {found.count('in part')} in part" in said


def test_what_is_marked_as_judged_once_is_so_in_the_ledgers(tmp_path):
    """A run's row has its confirmation's figure where there is one, else the candidate's."""
    unpack(LEDGERS, tmp_path)
    roles: dict[float, set[str]] = {}
    confirmed: dict[float, bool] = {}
    for file in (tmp_path / "ledgers").glob("*/ledger.jsonl"):
        rows_of = Ledger(file).rows
        for row in rows_of:
            if row.verdict is not None and row.verdict.speedup is not None:
                roles.setdefault(row.verdict.speedup, set()).add(row.tags.get("role", "candidate"))
                confirmed[row.verdict.speedup] = any(one.kept and is_confirmation(one) for one in rows_of)
    found = [row for name in ("h200", "h100", "kernelbench-h200", "kernelbench-h100", "cpu", "cpu-xeon")
             for row in json.loads((ROOT / "docs" / "search-runs" / f"{name}.json").read_text())["rows"]
             if row["kept"] != "nothing" and row["asked"] == row["precision"]]
    assert len(found) > 50
    lost = [row for row in found if row["speedup"] not in roles and not row.get("apart")]
    assert [(row["workload"], row["budget_s"]) for row in lost] == [
        ("conv_block", 180.0), ("level1_50_conv_standard_2D__square_input__square_kernel", 120.0), ("level2_1_Conv2D_ReLU_BiasAdd", 120.0),
    ], "the command was cut off, or left its reports behind"
    for row in (row for row in found if row not in lost):
        said = {role for one in row.get("apart") or [[row["speedup"]]] for role in roles[one[0]]}
        known = confirmed[row["speedup"]] if "audit" in said else "confirmation" in said
        assert row["confirmed"] == known, (row["workload"], row["precision"], row["budget_s"])


def test_what_is_said_of_two_cpu_cores_is_what_was_measured(tmp_path):
    folder, said = ROOT / "docs" / "search-runs", " ".join((ROOT / "docs" / "search.md").read_text().split())
    found = {row["workload"]: row for row in json.loads((folder / "cpu.json").read_text())["rows"]}
    assert pages.table(found.values()) == (folder / "cpu.md").read_text()
    assert len(found) == 7 and min(row["speedup"] for row in found.values()) == 1.0, "never slower than eager"
    means = [f"{pages.geometric_mean(row[key] for row in found.values()):.2f}x" for key in ("speedup", "over")]
    assert f"geometric mean {means[0]} over the original, {means[1]} over the best row of the ladder" in said
    faster = [row for row in found.values() if row["kept"] != "nothing"]
    once = [row for row in faster if not row["confirmed"]]
    assert (len(faster), len(once)) == (4, 2) and "four are faster, and three stay as they are. Two of the four are judged once" in said
    unpack(LEDGERS, tmp_path)

    def runs(name: str) -> dict[str, list]:
        return {file.parent.name.removeprefix(f"{name}_").removesuffix("_equal-60s"): Ledger(file).rows
                for file in sorted((tmp_path / "ledgers").glob(f"{name}_*/ledger.jsonl"))}

    now, before = runs("cpu16"), runs("cpu15")
    longest_s = max(row.elapsed_s for rows_of in now.values() for row in rows_of if row.verdict is not None)
    assert f"judgements took up to {longest_s:.0f} s" in said
    for words, name in (("The embedding example comes to {0:.2f}x, {1:.2f}x over the ladder (`fold_embedding`", "embedding_projection"),
                        ("the depthwise example to {0:.2f}x, {1:.2f}x [{2:.2f}, {3:.2f}] over its best row (`fold_conv_bn` and `chan",
                         "depthwise_separable_conv"),
                        ("the MLP to {0:.2f}x, where no row of the ladder is faster", "mlp_activations"),
                        ("the convolutions to {0:.2f}x (`compile_default`, the best row itself).", "conv_block")):
        assert words.format(found[name]["speedup"], found[name]["over"], *(found[name]["over_interval"] or ())) in said, words
    assert [row["workload"] for row in faster if not row["confirmed"]] == ["conv_block", "mlp_activations"]
    assert "undecided" in found["mlp_activations"]["rung"] and found["conv_block"]["rung"] == found["conv_block"]["kept"]
    assert {row["workload"] for row in found.values() if row["kept"] == "nothing"} == {"gpt2", "sdpa_attention", "lstm_sequence_encoder"}

    def verdicts(rows_of: list, name: str) -> list:
        return [row.verdict for row in rows_of if row.verdict is not None and name in row.name]

    gpt2, = verdicts(now["gpt2"], "compile_default")
    assert "`compile_default` was judged {:.2f}x [{:.2f}, {:.2f}] of GPT-2, too noisy".format(gpt2.speedup, *gpt2.interval) in said
    direct = next(row for row in now["sdpa_attention"] if row.verdict is not None and "direct_calls" in row.passes)
    assert f"`direct_calls`, screened at {direct.screen.speedup:.2f}x, was not confirmed by the judge's own clock" in said
    assert "judge's own clock" in direct.reason and direct.verdict.verdict == "AMBIGUOUS"
    first, second = verdicts(now["lstm_sequence_encoder"], "compile_default")
    assert f"was judged {first.speedup:.2f}x, and by its confirmation {second.speedup:.2f}x, which is none." in said
    faster = {name: [row.verdict.speedup for row in rows_of if row.verdict is not None and row.verdict.verdict == "FASTER"]
              for name, rows_of in before.items()}
    kept = {name: gains[-1] if gains else 1.0 for name, gains in faster.items()}
    assert f"twenty minutes before came to {pages.geometric_mean(kept.values()):.2f}x, six faster" in said
    assert sum(one > 1 for one in kept.values()) == 6
    assert f"the depthwise example {kept['depthwise_separable_conv']:.2f}x, attention {kept['sdpa_attention']:.2f}x (`direct_calls`), " \
        f"each judged once, and the LSTM {kept['lstm_sequence_encoder']:.2f}x (`no_grad`, judged " \
        f"{verdicts(before['lstm_sequence_encoder'], 'no_grad')[0].speedup:.2f}x first)" in said
    slow, ended = (next(row for row in rows_of["gpt2"] if row.name == "compile_default" and row.screen) for rows_of in (now, before))
    assert f"where it has five now, and a screen of it, compiled, takes {slow.screen.elapsed_s:.0f} s." in said
    assert slow.screen.status == "timed" and ended.screen.status == "out_of_budget"
    paces = [row["per_minute"] for row in found.values()]
    assert f"at {min(paces):.1f} to {max(paces):.1f} candidates a minute" in said


def test_what_is_said_of_two_cores_of_a_xeon_is_what_was_measured(tmp_path):
    folder, text = ROOT / "docs" / "search-runs", " ".join((ROOT / "docs" / "search.md").read_text().split())
    rows_of = json.loads((folder / "cpu-xeon.json").read_text())["rows"]
    assert pages.table(rows_of) == (folder / "cpu-xeon.md").read_text()
    said = text.split("The same [on two cores of an Intel Xeon]")[1]
    found = {row["workload"]: row for row in rows_of}
    means = [f"{pages.geometric_mean(row[key] for row in rows_of):.2f}x" for key in ("speedup", "over")]
    assert f"mean {means[0]} over the original, {means[1]} over the best row of the ladder, none below it by half a percent; six faster, " \
        "all confirmed but GPT-2." in said
    assert len(found) == 7 and min(row["speedup"] for row in rows_of) == 1.0 and min(row["over"] for row in rows_of) > 0.995
    assert [name for name, row in found.items() if row["confirmed"] is False] == ["gpt2"]
    assert [name for name, row in found.items() if row["kept"] == "nothing"] == ["lstm_sequence_encoder"]
    for words, name in (("embedding example comes to {0}, {1} over the ladder,", "embedding_projection"),
                        ("depthwise example to {0}, {1} over it,", "depthwise_separable_conv"),
                        ("the MLP to {0}, {1} over it,", "mlp_activations"),
                        ("convolutions to {0}, {1} over it (`fold_conv_bn` and `channels_last`", "conv_block"),
                        ("attention to {0}, {1} over it (`direct_calls`", "sdpa_attention"),
                        ("GPT-2 to {0}, {1} over it (`compile_default`).", "gpt2")):
        assert words.format(*(f"{found[name][key]:.2f}x" for key in ("speedup", "over"))) in said, words
    unpack(LEDGERS, tmp_path)

    def runs(number: int) -> list[tuple[datetime, list[Experiment]]]:
        files = [tmp_path / "ledgers" / f"cpu{number}_{name}_equal-60s" for name in found]
        return [(datetime.fromisoformat(states.load(file).started_utc), Ledger(file / "ledger.jsonl").rows) for file in files]

    def confirmed(of: list[tuple[datetime, list[Experiment]]]) -> int:
        return sum(any(row.kept and is_confirmation(row) for row in rows_of) for _begun, rows_of in of)

    now, before_that, earlier, epyc = (runs(number) for number in (19, 18, 17, 16))
    assert f"{(now[0][0] - before_that[0][0]).total_seconds() / 60:.0f} minutes before" in said
    assert [(now[0][0].date() - of[0][0].date()).days for of in (epyc, earlier)] == [1, 0] and ", a day later" in said
    kept = [next(row.verdict.speedup for row in reversed(rows_of) if row.verdict is not None and row.verdict.verdict == "FASTER")
            for _begun, rows_of in before_that]
    cut = [row.elapsed_s for _begun, rows_of in before_that for row in rows_of
           if row.tags.get(ROLE) == CONFIRMATION and row.status == "out_of_budget"]
    assert f"came to {pages.geometric_mean(kept):.2f}x, all seven faster, four confirmed: the other three were cut short after 9 s" in said
    assert [confirmed(of) for of in (before_that, earlier)] == [4, 2] and {f"{seconds:.0f}" for seconds in cut} == {"9"}
    lstm = [row.verdict for row in now[[*found].index("lstm_sequence_encoder")][1] if row.verdict and "keep_heap" in row.name]
    first, second = (f"{one.speedup:.2f}x" for one in lstm)
    assert f"`keep_heap` was judged {first}, and by its confirmation {second}, which is too noisy" in said
    paces = [row["per_minute"] for row in rows_of]
    assert f"at {min(paces):.1f} to {max(paces):.1f} candidates a minute" in said and all(row["used_s"] <= 60.0 for row in rows_of)


def test_what_is_said_of_kernelbench_is_what_was_measured():
    folder = ROOT / "docs" / "search-runs"
    found = json.loads((folder / "kernelbench-h200.json").read_text())["rows"]
    assert pages.table(found) == (folder / "kernelbench-h200.md").read_text()
    every, found = found, [row for row in found if (row["asked"], row["budget_s"]) == ("equal", 60.0)]
    assert len(found) == 18
    levels = [sum(row["workload"].startswith(f"level{level}_") for row in found) for level in (1, 2, 3)]
    said = " ".join((ROOT / "docs" / "search.md").read_text().split())
    means = [f"{pages.geometric_mean(row[key] for row in found):.2f}x" for key in ("speedup", "over")]
    assert levels == [10, 5, 3] and "ten of level 1, five of level 2, three of level 3" in said
    assert f"geometric mean {means[0]} over the original and {means[1]} over the best row of the ladder" in said
    split = [row for row in found if "split_" in row["kept"]]
    least, most = (f"{pick(row['speedup'] for row in split):.2f}x" for pick in (min, max))
    assert len(split) == 9 and f"come to {least} to {most} by" in said
    assert f"where the ladder gives at most {max(row['rung_speedup'] for row in split):.2f}x" in said
    below = [f"{row['over']:.2f}x" for row in found if row["over"] < 1.0]
    assert below == ["0.96x", "0.77x"] and "Two are below their ladder" in said and all(f", {share}" in said for share in below)
    by_hand = {row["workload"]: row for row in split if "split_attention_by_hand" in row["kept"]}
    assert len(by_hand) == 2
    for words, name in (("minGPT's comes to {0}, {1} over that row, and", "level3_43_MinGPTCausalAttention"),
                        ("the GPT block to {0}, {1} over it, with", "level3_44_MiniGPTBlock")):
        assert words.format(*(f"{by_hand[name][key]:.2f}x" for key in ("speedup", "over"))) in said, words
    assert sum(row.get("confirmed") is False for row in found) == 7 and "what seven of them keep has no second judgement" in said
    shares = [row["warm"]["share"] for row in found if row.get("warm") and row["warm"]["share"] is not None]
    assert len(shares) == 9 and sum(bool(row.get("warm")) and row["kept"] != "nothing" for row in found) == 11
    assert "nine of the eleven" in said and f"came again in {pages.geometric_mean(shares):.2f} of the time after the baseline" in said
    longer = {row["workload"]: row for row in every if (row["asked"], row["budget_s"]) == ("equal", 120.0)}
    ended = sorted(row["used_s"] for row in longer.values() if row["kept"] == "nothing")
    assert len(ended) == 3 and f"ended by themselves after {ended[0]:.0f} to {ended[-1]:.0f} s" in said


def test_what_is_said_of_kernelbench_in_two_minutes_is_what_was_measured(tmp_path):
    folder, said = ROOT / "docs" / "search-runs", " ".join((ROOT / "docs" / "search.md").read_text().split())
    found = [row for row in json.loads((folder / "kernelbench-h200.json").read_text())["rows"]
             if (row["asked"], row["budget_s"]) == ("equal", 120.0)]
    means = [f"{pages.geometric_mean(row[key] for row in found):.2f}x" for key in ("speedup", "over")]
    least = [f"{min(row[key] for row in found):.2f}x" for key in ("speedup", "over")]
    assert [sum(row["workload"].startswith(f"level{level}_") for row in found) for level in (1, 2, 3)] == [10, 5, 5]
    assert "All twenty had 120 s [on an H200]" in said and f"mean {means[0]} over the original, {means[1]} over the best row of the " \
        f"ladder, the least {least[0]} and {least[1]}, two judged once. With" in said
    ran = {row["workload"]: row["warm"] for row in found if row["kept"] != "nothing"}
    alone, with_it = (pages.geometric_mean(one[key] for one in ran.values()) for key in ("share", "whole_share"))
    assert f"again in {alone:.2f} of the time after the baseline's profile, {with_it:.2f} with that profile (seventeen of the sev" in said
    slow = {name: one for name, one in ran.items() if one["share"] > 1 / 3}
    assert len(ran) == 17 and max(alone, with_it) < 1 / 3 and len(slow) == 2

    def of(name: str) -> dict:
        return next(row for row in found if name in row["workload"])

    assert {row["workload"] for row in found if row["confirmed"] is False} == {of(name)["workload"] for name in ("AlexNet", "level1_86_")}
    shares = [f"{slow[of(name)['workload']]['share']:.2f}" for name in ("level1_86_", "level1_7_")]
    assert "the depthwise separable convolution, {}, and the product of 32768 x 64, {}.".format(*shares) in said
    products = [of(name) for name in ("level1_1_", "BatchNorm", "LeakyReLU", "Add_ReLU", "MLP", "LeNet5")]
    assert "come to {} (4096 x 4096), {} (with a BatchNorm), {} (with a LeakyReLU), {} (with a ReLU), the MLP to {} by `split_products` " \
        "or `split_matmuls`, LeNet-5 to {} (mostly".format(*(f"{row['speedup']:.2f}x" for row in products)) in said
    assert f"the ladder gives at most {max(row['rung_speedup'] for row in products):.2f}x." in said
    ten = (*products, *map(of, ("GroupNorm", "Attention", "GPTBlock", "level1_7_")))
    assert all("split_" in row["kept"] and row["confirmed"] for row in ten) and len(ten) == 10
    for words, name, passes in (("GroupNorm comes to {0}, {1} over the ladder's best row", "GroupNorm", "inductor_cooperative_reductions"),
                                ("attention to {0}, {1} over it, and", "Attention", "split_attention_by_hand"),
                                ("GPT block to {0}, {1} over it (`split_attention_by_hand`).", "GPTBlock", "split_attention_by_hand"),
                                ("by 64 x 32768 comes to {0}, {1} over it (`split_matmuls`, compiled). All ten", "level1_7_",
                                 "split_matmuls"),
                                ("separable convolution comes to {0}, {1} over the ladder's best row", "level1_86_",
                                 "separable_convolutions"),
                                ("AlexNet comes to {0}, {1} over the ladder's best row", "AlexNet", "fuse_pooling"),
                                ("judged once, the GELU to {0}, {1} over it.", "NewGelu", "inductor_fuse_more"),
                                ("The LayerNorm, {0}, the cross", "LayerNorm", None), ("entropy, {0}, and the", "CrossEntropy", None),
                                ("convolution of 3 channels, {0}, are the best row itself", "level1_50", None),
                                ("ReLU and bias comes to {0}, {1} of the best row, which measures", "level2_1_", "fuse_conv_relu")):
        assert words.format(*(f"{of(name)[key]:.2f}x" for key in ("speedup", "over"))) in said, words
        assert passes in of(name)["kept"].split("+") if passes else of(name)["kept"] == of(name)["rung"], name
    assert "max_autotune" in of("level2_1_")["rung"] and {"fuse_pooling", "channels_last"} <= set(of("AlexNet")["kept"].split("+"))
    unpack(LEDGERS, tmp_path)

    def earned(folder: str) -> dict[str, float]:
        rows_of = Ledger(tmp_path / "ledgers" / folder / "ledger.jsonl").rows
        return {row.name.split(" without ")[1]: row.screen.speedup for row in rows_of if row.tags.get("role") == "ablation" and row.screen}

    separable = Ledger(tmp_path / "ledgers" / "h200ze_kb_level1_86_equal-120s" / "ledger.jsonl").rows
    judgement, ended = (row for row in separable if row.verdict is not None or "churn" in row.reason)
    assert ended.status == "out_of_budget" and is_confirmation(ended)
    assert f"a judgement took {judgement.elapsed_s:.0f} s, and the budget ended the confirmation" in said
    days = {state["started_utc"][:10] for file in (tmp_path / "ledgers").glob("h200z[de]_kb_*_equal-120s/state.json")
            if (state := json.loads(file.read_text()))}
    ledgers = list((tmp_path / "ledgers").glob("h200z[de]_kb_*_equal-120s"))
    assert (len(days), len(ledgers)) == (1, 12) and "fourteen of them on one day" in said, "two are without a ledger"
    norm = earned("h200zd_kb_level2_37_equal-120s")
    assert norm["split_products"] > 2 and f"was kept and earned nothing, {norm['inductor_cooperative_reductions']:.3f}x" in said
    lenet = next((tmp_path / "ledgers").glob("h200*_kb_level3_4_equal-120s"))
    shares = earned(lenet.name)
    assert max(shares, key=lambda name: shares[name]) == "few_channel_convolutions"


def test_what_is_said_of_kernelbench_at_tf32_is_what_was_measured(tmp_path):
    said = " ".join((ROOT / "docs" / "search.md").read_text().split())
    rows_of = json.loads((ROOT / "docs" / "search-runs" / "kernelbench-h200.json").read_text())["rows"]
    found = [row for row in rows_of if (row["precision"], row["budget_s"]) == ("tf32", 60.0)]
    names = [row["workload"] for row in found]
    assert set(names) == {row["workload"] for row in rows_of if row["precision"] == "bf16"}
    assert len(set(names)) == len(names) == 20 and "All twenty at tf32" in said
    means, least = ([f"{pick(row[key] for row in found):.2f}x" for key in ("speedup", "over")] for pick in (pages.geometric_mean, min))
    once, late = (sum(test(row) for row in found) for test in (lambda row: row["confirmed"] is False, lambda row: row["used_s"] > 60.0))
    assert f"mean {means[0]} over the original, {means[1]} over the best row of the ladder at that flag, the least {least[0]} and " \
        f"{least[1]}, six judged once, all of one day, all within 60 s." in said
    assert (once, late) == (6, 0) and all(row["asked"] == "tf32" for row in found)

    def of(name: str) -> dict:
        return next(row for row in found if name in row["workload"])

    for words, name in (("LeNet-5 comes to {0}, {1} over that row (`few", "LeNet5"),
                        ("the MLP to {0}, {1} over it (`compile_default` in a CUDA graph)", "MLP"),
                        ("activations to {0}, {1} over it, and", "level2_12"),
                        ("and {0}, {1} over it (`selective_tf32` in a CUDA", "level2_76"), ("a product of 4096 x 4096, {0}", "level1_1_"),
                        ("the one with Swish and GroupNorm, {0}", "GroupNorm"),
                        ("LayerNorm comes to {0}, {1} over it (`fuse_norms`), judged", "LayerNorm"),
                        ("and the cross entropy, {0}, judged once", "CrossEntropy"),
                        ("of AlexNet, {1} of the best row: `chan", "AlexNet"),
                        ("separable convolution comes to {0}, {1} over it (`separable_convolutions`), judged once", "level1_86"),
                        ("the convolution with ReLU and bias, {1}, the conv", "level2_1_"), ("the GELU, {1}", "NewGelu"),
                        ("and the product with a BatchNorm, {1}", "BatchNorm"),
                        ("the convolution of 3 channels, {1}", "level1_50"),
                        ("attention comes to {0}, {1} over that row", "Attention"),
                        ("GPT block to {0}, {1} over the best of the", "MiniGPT")):
        assert words.format(*(f"{of(name)[key]:.2f}x" for key in ("speedup", "over"))) in said, words
    itself = [row for row in found if row["kept"] == row["rung"]]
    nothing, below = ([row["workload"] for row in found if test(row)] for test in (lambda row: row["kept"] == "nothing",
                                                                                  lambda row: row["over"] < 1.0))
    assert len(itself) == 5 and "Five are the ladder's best row itself" in said
    assert [name.split("_")[1] for name in sorted(nothing)] == ["12", "62", "5"]
    more = [name for name in below if "AlexNet" not in name]
    assert len(more) == 4 and "Four more are below the ladder's best row" in said
    assert of("MiniGPT")["ladder_missing"] and not of("LayerNorm")["confirmed"] and not of("CrossEntropy")["confirmed"]
    assert len(below) == 5 and "AlexNet" in min(found, key=lambda row: row["over"])["workload"]
    assert [name for name in more if "max_autotune" not in of(name)["rung"]] == [of("NewGelu")["workload"]]
    assert {"selective_tf32", "cuda_graph"} <= set(of("level2_12")["kept"].split("+")) & set(of("level2_76")["kept"].split("+"))
    unpack(LEDGERS, tmp_path)

    def ledger(run: str) -> list:
        return Ledger(tmp_path / "ledgers" / run / "ledger.jsonl").rows

    assert [count for _, count in days(tmp_path, found)] == [20]

    def first_judgement(run: str) -> tuple[float, Experiment]:
        """(seconds from the search's start to its first judgement, but for what lies between its rows; its row)."""
        rows, folder = ledger(run), tmp_path / "ledgers" / run
        place = next(place for place, row in enumerate(rows) if row.verdict or row.reason.startswith("not judged: the time was up"))
        return json.loads((folder / "state.json").read_text())["baseline_s"] + sum(row.elapsed_s for row in rows[:place]), rows[place]

    (began_s, cut), (again_s, done) = (first_judgement(f"h200z{run}_kb_level1_86_tf32-60s") for run in "jk")
    assert f"its judgement began {began_s:.0f} s after the start, and was ended {cut.elapsed_s:.0f} s later for want of time" in said
    assert f"so it began after {again_s:.0f} s, and took {done.elapsed_s:.0f} s." in said and cut.verdict is None
    (_, took), (before_s, cut) = (first_judgement(f"h200z{run}_kb_level3_5_tf32-60s") for run in "kj")
    assert f"overrun its minute, though its judgement was ended after {before_s + cut.elapsed_s:.0f} s" in said
    assert f"The search took {of('AlexNet')['used_s']:.1f} s. An earlier" in said
    refused = {row["workload"].split("_", 2)[2] for row in found if any(": WRONG " in one for one in row["ladder_missing"])}
    assert refused == {"DeepNarrowMLP", "conv_depthwise_separable_2D", "AlexNet"} and "Of three, the MLP, the depthwise" in said
    assert all("max_autotune" in one and "limit from the reference run in tf32" in one for row in found for one in row["ladder_missing"]
               if ": WRONG " in one)
    assert f"AlexNet, 0.62x of the best row: `{took.name}` screened {took.screen.speedup:.2f}x, and its judgement was ended after " \
        f"{took.elapsed_s:.0f} s" in said and "make inputs" in took.reason
    slow, quick = (next(row for row in ledger(run) if row.status == "screened" and "max_autotune" in row.name and not row.reason)
                   for run in ("h200zg_kb_level1_95_tf32-60s", "h200zj_kb_level1_95_tf32-60s"))
    assert quick.screen.compiled_ahead and not slow.screen.compiled_ahead
    assert f"or screened in {slow.screen.elapsed_s:.0f} s." in said and f"was screened in {quick.screen.elapsed_s:.0f} s here" in said
    unseen = [row for row in ledger("h200zf_kb_level1_95_tf32-60s") if row.name.startswith("compile_max_autotune")]
    assert len(unseen) == 2 and all(row.screen is None and row.status == "out_of_budget" for row in unseen)
    wide = next(row for row in ledger("h200u_kb_level3_5_bf16-60s") if row.verdict is not None)
    assert f"At bf16 one was done in the minute, after {wide.elapsed_s:.0f} s: {wide.verdict.speedup:.2f}x." in said
    gelu = {row.name: row.screen.speedup for row in ledger("h200zj_kb_level1_88_tf32-60s") if row.screen is not None and not row.reason}
    assert gelu["compile_max_autotune_no_cudagraphs+tf32"] > gelu["compile_default"] and of("NewGelu")["over"] < 1
    screens = {row.name: row.screen.speedup for row in Ledger(tmp_path / "ledgers" / "h200w_kb_level3_43_tf32-60s" / "ledger.jsonl").rows
               if row.screen is not None and row.screen.speedup is not None}
    once, split, plain = (screens["+".join([*names, "compile_default", "tf32"])] for names in (
        ("sdpa_substitution", "freeze_weights"), ("sdpa_substitution", "split_attention_by_hand", "freeze_weights"), ()))
    assert f"showed {once:.2f}x, with `split_attention_by_hand` {split:.2f}x, and attention as it was written {plain:.2f}x" in said
    assert {row["workload"].split("_", 2)[2] for row in found if "scaled_fp16_attention_by_hand" in row["kept"]} == {
        "MinGPTCausalAttention", "MiniGPTBlock"}


def test_what_is_said_of_kernelbench_at_bf16_is_what_was_measured(tmp_path):
    said = " ".join((ROOT / "docs" / "search.md").read_text().split())
    rows_of = json.loads((ROOT / "docs" / "search-runs" / "kernelbench-h200.json").read_text())["rows"]
    found = [row for row in rows_of if (row["precision"], row["budget_s"]) == ("bf16", 60.0)]
    assert [sum(row["workload"].startswith(f"level{level}_") for row in found) for level in (1, 2, 3)] == [10, 5, 5]
    means, least = ([f"{pick(row[key] for row in found):.2f}x" for key in ("speedup", "over")] for pick in (pages.geometric_mean, min))
    assert f"mean {means[0]} over the original, {means[1]} over the best bf16 row" in said
    assert f"best bf16 row of the ladder, the least {least[0]} and {least[1]}." in said
    assert all(row["used_s"] <= 60.0 for row in found) and sum(row["confirmed"] is False for row in found) == 7
    assert "All within 60 s, seven judged once." in said

    def of(name: str) -> dict:
        return next(row for row in found if name in row["workload"])

    graphed = [row for row in found if row["over"] > 1 and {"bf16", "cuda_graph"} <= set(row["kept"].split("+"))]
    ends = [f"{pick(row[key] for row in graphed):.2f}x" for key in ("speedup", "over") for pick in (min, max)]
    assert len(graphed) == 3 and f"Two products and an MLP come to {ends[0]} to {ends[1]}, {ends[2]} to {ends[3]} over that row" in said
    for words, name in (("separable convolution to {0}, {1} over it", "level1_86"),
                        ("AlexNet to {0}, {1} over it (`bf16_reverted`)", "AlexNet"),
                        ("attention to {0}, {1} over it (`sdpa", "Attention"), ("the GPT block, {0}", "MiniGPTBlock"),
                        ("the last the LayerNorm, {0}.", "LayerNorm"), ("the product with a BatchNorm, {0}, the", "BatchNorm"),
                        ("the GELU, {0}, judged once, and", "level1_88_"),
                        ("The product with Swish and GroupNorm comes to {0}, {1} over its best row (`freeze_weights`)", "GroupNorm"),
                        ("the convolution with ReLU and bias, {0}. The", "level2_1_")):
        assert words.format(*(f"{of(name)[key]:.2f}x" for key in ("speedup", "over"))) in said, words
    below = [row for row in found if row["over"] < 1]
    assert sum(row["kept"] == row["rung"] for row in found) == 8 and "Eight are the ladder's best row itself" in said
    least = [f"{share:.2f}x" for share in sorted(row["over"] for row in below)]
    assert len(below) == 4 and f"Four are below it, {least[0]}, {least[1]}, {least[2]} and {least[3]}, the last the LayerNorm" in said
    assert all("max_autotune" in row["rung"] for row in below)
    unpack(LEDGERS, tmp_path)

    def first(folder: str) -> list:
        return Ledger(tmp_path / "ledgers" / f"h200{folder}_bf16-60s" / "ledger.jsonl").rows

    def confirmed(rows: list) -> str:
        found = [row.verdict.speedup for row in rows if row.tags.get("role") == "confirmation" and row.kept]
        return f"{found[0]:.2f}x" if found else "nothing"

    def came(folder: str) -> float:
        judged = [row for row in first(folder) if row.verdict and row.verdict.speedup and not is_audit(row)]
        return next((row for row in reversed(judged) if row.kept), judged[-1]).verdict.speedup

    for folder, later, words in (("q_kb_level1_40", "u_kb_level1_40", ""), ("s_kb_level2_39", "t_kb_level2_39", ""),
                                 ("s_kb_level1_62", "u_kb_level1_62", ""), ("r_kb_level1_95", "s_kb_level1_95", " was kept")):
        assert f"{confirmed(first(folder))}{words}, then {came(later):.2f}x" in said, folder
    for folder, name, words in (("ze_kb_level2_39", "BatchNorm", "came to {} and {} of the product with a BatchNorm"),
                                ("u_kb_level1_40", "LayerNorm", "to {} and {} of the LayerNorm.")):
        assert words.format(f"{came(folder):.2f}x", f"{of(name)['speedup']:.2f}x") in said and of(name)["kept"] == "bf16+compile_default"
        assert any(row.kept and "(bf16+compile_default)" in row.name for row in first(folder)), folder
    for folder, name in (("t_kb_level2_39", "BatchNorm"), ("t_kb_level2_1", "level2_1_")):
        assert [row.name for row in first(folder) if row.verdict and "bf16_autocast" in row.passes], name
        assert of(name)["kept"] == of(name)["rung"] == "bf16+compile_default"
    for name, problem, earlier, words in (("LeNet5", "level3_4", "u", "LeNet-5, here {}, kept `few_channel_convolutions`, compiled, {},"),
                                          ("level2_76", "level2_76", "u", "with a ReLU, now {}, kept the cast in a CUDA graph, {},")):
        assert words.format(f"{of(name)['speedup']:.2f}x", confirmed(first(f"{earlier}_kb_{problem}"))) in said, words
    known = states.load(tmp_path / "ledgers" / "h200zk_kb_level3_4_bf16-60s").costs["judgement"]
    lenet = first("zk_kb_level3_4")
    own = next(place for place, row in enumerate(lenet) if row.verdict is not None)
    assert f"had taken {known:.0f} s, {60 * budget.JUDGING_SHARE:.0f} s of the minute were held back for two such" in said
    assert 2 * known > 60 * budget.JUDGING_SHARE and f"its own, which took {lenet[own].elapsed_s:.0f} s." in said
    assert not any("compile" in row.name for row in lenet[:own])
    since = next(row for row in Ledger(tmp_path / "ledgers" / "h200zl_kb_level3_4_bf16-60s_no_ladder" / "ledger.jsonl").rows if row.kept)
    product = next(row for row in first("zl_kb_level1_6") if row.verdict is not None)
    assert f"whose judgement took {product.elapsed_s:.0f} s, LeNet-5 kept `few_channel_convolutions` with the cast in a CUDA graph, " \
        f"{since.verdict.speedup:.2f}x, confirmed" in said and is_confirmation(since)
    assert since.tags[OF] == "few_channel_convolutions+bf16+cuda_graph"
    assert days(tmp_path, found)[0][1] == 14 and "fourteen of them of one day: geometric mean 4" in said
    channels, now = of("level1_50"), first("zg_kb_level1_50")
    assert f"keeps `{channels['kept']}`, {channels['speedup']:.2f}x, the ladder's best row itself" in said and channels["over"] == 1.0
    assert next(row.screen.compiled_ahead for row in now if row.name == channels["kept"])
    assert f"had kept `compile_default`, {confirmed(first('r_kb_level1_50'))} and {confirmed(first('ze_kb_level1_50'))}." in said
    assert all(row.screen.speedup < 1 for row in now if row.screen and row.screen.speedup and {"bf16", "bf16_autocast"} & set(row.passes))
    rows = first("p_kb_level3_44")
    cast = next(row for row in rows if row.name == "bf16")
    assert cast.status == "failed" and "must have the same dtype" in cast.reason
    assert f"had kept `compile_default+tf32`, {confirmed(rows)}, in a first run" in said


def test_what_is_said_of_longer_budgets_and_of_an_h100_is_what_was_measured(tmp_path):
    folder, said = ROOT / "docs" / "search-runs", " ".join((ROOT / "docs" / "search.md").read_text().split())
    found, problems, earlier = (json.loads((folder / f"{name}.json").read_text())["rows"] for name in ("h100", "kernelbench-h100", "h200"))
    assert pages.table(found) == (folder / "h100.md").read_text() and pages.table(problems) == (folder / "kernelbench-h100.md").read_text()
    assert {row["device_name"] for row in (*found, *problems)} == {"NVIDIA H100 80GB HBM3"}
    short = {row["budget_s"]: row["speedup"] for row in earlier if (row["workload"], row["asked"]) == ("conv_block", "equal")}
    now = {row["budget_s"]: row for row in earlier if (row["workload"], row["asked"]) == ("conv_block", "equal")}
    assert f"{short[60.0]:.2f}x in 60 s, {short[180.0]:.2f}x in 180 s and {short[480.0]:.2f}x in 480 s" in said
    paces = [f"{now[budget_s]['per_minute']:.1f}" for budget_s in (60.0, 180.0, 480.0)]
    assert f"{paces[0]}, {paces[1]} and {paces[2]} candidates a minute in all; {short[120.0]:.2f}x in 120 s." in said
    assert f"ended by itself after {now[480.0]['used_s']:.0f} s" in said
    assert now[480.0]["interval"][0] < now[180.0]["interval"][0] < now[480.0]["interval"][1], "the second and the third overlap"
    middle, long = found[:2]
    assert f"{middle['speedup']:.2f}x in 180 s and {long['speedup']:.2f}x in 480 s" in said
    assert f"{middle['per_minute']:.1f} and {long['per_minute']:.1f} candidates a minute" in said
    assert f"took {middle['after_us']:.0f} us after 180 s and {long['after_us']:.0f} us after 480 s" in said
    assert f"the original {middle['before_us']:.0f} us and {long['before_us']:.0f} us" in said
    after = {one["minutes"]: one["gain"] for one in long["bought"]}
    assert f"{after['1']} after one minute and {after['3']} after three" in said
    unpack(LEDGERS, tmp_path)
    one = tmp_path / "ledgers" / "h200p_conv_block_equal-180s" / "ledger.jsonl"
    before = next(row for row in reversed(Ledger(one).rows) if row.tags.get("role") == "confirmation")
    left = next(row.reason for row in Ledger(one).rows if row.name == "not begun").partition(" left")[0].removeprefix("not begun with ")
    assert f"180 s had kept {before.verdict.speedup:.2f}x and ended with {left} left" in said
    before, after = (Ledger(tmp_path / "ledgers" / name / "ledger.jsonl").rows for name in (
        "h100b_conv_block_equal-480s", "h200zj_conv_block_equal-480s"))
    idle, since = ([strategy._rewrites(row.passes) for row in one if row.status == "not_applicable" and strategy.IDLE in row.reason
                    and not row.tags.get("role")] for one in (before, after))
    assert f"Of its {long['candidates']} candidates {len(idle)} found nothing to change, {len(idle) - len(set(idle))} of them as" in said
    tried = {row.name for row in after if not row.tags.get("role") and row.screen is not None}
    assert len(set(since)) == len(since) and not any("cpp_wrapper" in name for name in tried) and now[480.0]["confirmed"]
    assert f"in the 480 s on the H200 {len(since)} of {len(tried)} found nothing to change, none as another had before" in said
    warm = middle["warm"]
    assert f"{warm['share']:.2f} of the time: {warm['warm_s']:.1f} s" in said and f"took {warm['cold_s']:.1f} s" in said


def test_what_is_said_of_bf16_on_an_h100_is_what_was_measured(tmp_path):
    said = " ".join((ROOT / "docs" / "search.md").read_text().split())
    rows_of = json.loads((ROOT / "docs" / "search-runs" / "h100.json").read_text())["rows"]
    found = {row["workload"]: row for row in rows_of if (row["asked"], row["budget_s"]) == ("bf16", 120.0)}
    means, least = ([f"{pick(row[key] for row in found.values()):.2f}x" for key in ("speedup", "over")]
                    for pick in (pages.geometric_mean, min))
    unpack(LEDGERS, tmp_path)
    assert len(found) == same_half_hour(tmp_path, "h100za", "bf16") == 7
    without = pages.geometric_mean(row["over"] for name, row in found.items() if name != "depthwise_separable_conv")
    assert f"machine within half an hour: {means[0]} and {means[1]}, the least {least[0]} and {least[1]} ({without:.2f}x without" in said
    gone = [(name, one) for name, row in found.items() for one in row["ladder_missing"]]
    assert len(gone) == 4 and all(name == "depthwise_separable_conv" and "bf16+compile" in one for name, one in gone)
    for words, name in (("GPT-2 comes to {0:.2f}x, {1:.2f}x over that row, the emb", "gpt2"),
                        ("the embedding example to {0:.2f}x, {1:.2f}x over it, att", "embedding_projection"),
                        ("attention to {0:.2f}x, {1:.2f}x over it, the MLP", "sdpa_attention"),
                        ("the MLP to {0:.2f}x, {1:.2f}x over it, the conv", "mlp_activations"),
                        ("the convolutions to {0:.2f}x, {1:.2f}x over it, the depth", "conv_block"),
                        ("the depthwise example to {0:.2f}x, {1:.2f}x over it (a judgement before had", "depthwise_separable_conv"),
                        ("the LSTM to {0:.2f}x, judged once.", "lstm_sequence_encoder")):
        assert words.format(found[name]["speedup"], found[name]["over"]) in said, words
    assert [name for name, row in found.items() if not row["confirmed"]] == ["lstm_sequence_encoder"]
    kept, best = sorted(one[0] for one in found["depthwise_separable_conv"]["apart"])
    assert kept == found["depthwise_separable_conv"]["speedup"] and f"(a judgement before had {best:.2f}x: the smaller one counts)" in said
    mlp, depthwise = (Ledger(tmp_path / "ledgers" / f"h100z_{name}_bf16-120s" / "ledger.jsonl").rows
                      for name in ("mlp_activations", "depthwise_separable_conv"))
    cast = next(row for row in mlp if row.name == "bf16+cuda_graph" and row.verdict is not None)
    low, high = cast.verdict.interval
    confirmed = next(row for row in mlp if row.tags.get("role") == "confirmation")
    assert f"the cast in a graph was judged {cast.verdict.speedup:.2f}x [{low:.2f}, {high:.2f}], which meets TF32's interval, and TF32, " \
        f"compiled, was kept, {confirmed.verdict.speedup:.2f}x" in said and "tf32+cuda_graph" in confirmed.name
    assert low < confirmed.verdict.interval[1]
    kept = next(row for row in depthwise if row.verdict is not None and "separable_convolutions" in row.passes)
    assert f"depthwise example kept {kept.verdict.speedup:.2f}x, judged once, without the cast" in said and "bf16" not in kept.passes
    assert not any(row.tags.get("role") == "confirmation" and row.verdict for row in depthwise)
    left = next(row.reason for row in depthwise if row.name == "not begun")
    assert "separable_convolutions+bf16+cuda_graph (expected 2.62x)" in left and not any(
        {"separable_convolutions", "bf16"} <= set(row.passes) for row in depthwise)
    others = json.loads((ROOT / "docs" / "search-runs" / "h200.json").read_text())["rows"]
    won = [row["kept"] for row in (*rows_of, *others)
           if (row["workload"], row["precision"], row["budget_s"]) == ("depthwise_separable_conv", "bf16", 120.0)]
    assert len(won) == 2 and all("separable_convolutions+bf16+" in one for one in won) and "and won on both cards" in said


def test_what_is_said_of_tf32_on_an_h100_is_what_was_measured(tmp_path):
    said = " ".join((ROOT / "docs" / "search.md").read_text().split())
    rows_of = json.loads((ROOT / "docs" / "search-runs" / "h100.json").read_text())["rows"]
    found = {row["workload"]: row for row in rows_of if (row["asked"], row["budget_s"]) == ("tf32", 120.0)}
    assert len(found) == 7
    means, least = ([f"{pick(row[key] for row in found.values()):.2f}x" for key in ("speedup", "over")]
                    for pick in (pages.geometric_mean, min))
    assert f"geometric mean {means[0]} over the original and {means[1]} over the best row of that ladder, the least {least[0]} and " \
        f"{least[1]}." in said
    for words, name in (("The LSTM comes to {0:.2f}x (`persistent_lstm`)", "lstm_sequence_encoder"),
                        ("the embedding example to {0:.2f}x, {1:.2f}x over that row (`fold_embedding`)", "embedding_projection"),
                        ("the MLP to {0:.2f}x, {1:.2f}x over it", "mlp_activations"),
                        ("attention to {0:.2f}x, {1:.2f}x over it (`split_attention`)", "sdpa_attention"),
                        ("the depthwise example to {0:.2f}x, {1:.2f}x over it", "depthwise_separable_conv"),
                        ("the convolutions to {0:.2f}x, {1:.2f}x over it", "conv_block"),
                        ("GPT-2 to {0:.2f}x, {1:.2f}x over it", "gpt2")):
        assert words.format(found[name]["speedup"], found[name]["over"]) in said, words
    unpack(LEDGERS, tmp_path)
    earlier, later, now, judged = (Ledger(tmp_path / "ledgers" / name / "ledger.jsonl").rows for name in (
        "h100g_gpt2_tf32-120s", "h100h_gpt2_tf32-120s", "h100i_gpt2_tf32-120s", "h100d_conv_block_tf32-120s"))
    kept = next(row.verdict.speedup for row in earlier if row.kept)
    assert kept < found["gpt2"]["rung_speedup"] and f"An earlier search of GPT-2 on an H100 kept {kept:.2f}x, less than the ladder" in said
    assert not any({"tf32", "cuda_graph"} <= set(row.passes) and row.screen for row in earlier)
    assert later[2].name == now[2].name == "tf32+cuda_graph" and "the third candidate of later searches" in said
    assert next(row.verdict.speedup for row in now if row.kept) == found["gpt2"]["speedup"] and found["gpt2"]["over_beside"]
    low, high = (next(row.verdict for row in later if row.verdict is not None and row.kept == is_kept and "tf32" in row.passes)
                 for is_kept in (False, True))
    assert low.interval[1] < high.interval[0] and f"One of those had {low.speedup:.2f}x and {high.speedup:.2f}x" in said
    before, after = ([getattr(one.comparison, side).median_ns / 1e6 for one in (low, high)] for side in ("reference", "candidate"))
    assert f"took {before[0]:.1f} ms a call in one judgement and {before[1]:.1f} ms in the other" in said
    assert {f"{value:.1f} ms in both" for value in after} == {"1.5 ms in both"} and "the program 1.5 ms in both" in said
    alone = next(row.screen.speedup for row in earlier if row.name == "tf32" and row.screen)
    assert f"TF32 alone, {alone:.2f}x, looked poor" in said
    judged = [row for row in judged if row.verdict is not None]
    assert [row.verdict.verdict for row in judged] == ["FASTER", "WRONG"]
    assert f"was judged FASTER, {judged[0].verdict.speedup:.2f}x, and its confirmation WRONG" in said
    for row in judged:
        error = row.verdict.correctness.errors[0]
        assert all(f"{value:.1e}".replace("e-0", "e-") in said for value in (error.reference_error, error.candidate_error))


def test_what_is_said_of_counters_on_an_h100_is_what_was_measured(tmp_path):
    said = " ".join((ROOT / "docs" / "search.md").read_text().split())
    unpack(LEDGERS, tmp_path)
    short, long = (Ledger(tmp_path / "ledgers" / f"h100i_embedding_projection_equal-{budget_s}s" / "ledger.jsonl").rows
                   for budget_s in (60, 300))
    kept = [next(row.verdict.speedup for row in one if row.kept) for one in (short, long)]
    assert f"on an H100: {kept[0]:.2f}x in 60 s and, with what that had left, {kept[1]:.2f}x in 300 s" in said
    moves = {(one.name, move.quantity): move for row in long for one in row.hypotheses for move in one.moves}
    cores, fewer, shorter = (moves[key] for key in (
        ("split_products", "tensor-core share"), ("fold_embedding", "kernels"), ("split_products", "kernel time")))
    assert f"tensor cores went from {cores.before:.0f}% to {cores.after:.0f}%" in said
    assert f"its kernels from {fewer.before:.0f} to {fewer.after:.0f}" in said
    assert f"their time to {shorter.ratio:.2f}" in said and ratio_of(cores.quantity, cores.before, cores.after) > 2
    assert fewer.result == shorter.result == "seen"


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
    for name in ("h200", "h100", "kernelbench-h200", "kernelbench-h100", "cpu", "cpu-xeon"):
        for row in json.loads((ROOT / "docs" / "search-runs" / f"{name}.json").read_text())["rows"]:
            if row["speedup"] in known and row["asked"] == row["precision"]:
                both = known[row["speedup"]].apart
                assert row.get("apart") == ([[one.speedup, *one.interval] for one in both] if both else None), row["workload"]
                assert row["interval"] == list(known[row["speedup"]].least[1])
                marked += both is not None
    assert marked >= 4


def test_what_is_said_of_kernelbench_on_an_h100_is_what_was_measured(tmp_path):
    folder, said = ROOT / "docs" / "search-runs", " ".join((ROOT / "docs" / "search.md").read_text().split())
    found = json.loads((folder / "kernelbench-h100.json").read_text())["rows"]
    short, whole = ({row["workload"].strip("_").split("_")[-1]: row for row in found if row["budget_s"] == budget_s}
                    for budget_s in (60.0, 120.0))
    assert {name: row["kept"] for name, row in short.items()} == {
        "LeNet5": "few_channel_convolutions+cuda_graph", "AlexNet": "nothing", "2D": "nothing"} and len(whole) == 14
    assert all(row["used_s"] <= row["budget_s"] for row in found), "each within its budget"
    means = [f"{pages.geometric_mean(row[key] for row in whole.values()):.2f}x" for key in ("speedup", "over")]
    assert f"geometric mean {means[0]} over the original, {means[1]} over the ladder" in said
    for words, name in (("GPT block comes to {0:.2f}x, {1:.2f}x over it", "MiniGPTBlock"),
                        ("AlexNet to {0:.2f}x, {1:.2f}x over it", "AlexNet"), ("convolution to {0:.2f}x, {1:.2f}x over it", "2D"),
                        ("GroupNorm comes to {0:.2f}x, {1:.2f}x over the ladder, confirmed", "GroupNorm"),
                        ("by 64 x 32768 comes to {0:.2f}x, {1:.2f}x over it, judged once", "dimension"),
                        ("a product of 4096 x 4096 to {0:.2f}x", "multiplication"),
                        ("best row itself, {0:.2f}x", "kernel"), ("and the cross entropy, {0:.2f}x", "CrossEntropyLoss"),
                        ("the LayerNorm, {0:.2f}x", "LayerNorm"), ("the GELU, {0:.2f}x", "MinGPTNewGelu"),
                        ("attention to {0:.2f}x, {1:.2f}x over it (the same", "MinGPTCausalAttention"),
                        ("one with a LeakyReLU to {0:.2f}x", "LeakyReLU"), ("the MLP to {0:.2f}x", "DeepNarrowMLP"),
                        ("ReLU and bias comes to {0:.2f}x, and is {1:.2f}x of the ladder's best row", "BiasAdd")):
        assert words.format(whole[name]["speedup"], whole[name]["over"]) in said, words
    assert all(whole[name]["kept"] == whole[name]["rung"] for name in ("kernel", "CrossEntropyLoss", "LayerNorm", "MinGPTNewGelu"))
    assert all(whole[name]["rung_speedup"] == 1.0 for name in ("LeakyReLU", "DeepNarrowMLP", "multiplication"))
    again = [row["warm"] for row in whole.values() if row.get("warm") and row["warm"]["share"] is not None]
    alone, with_it = (pages.geometric_mean(row[key] for row in again) for key in ("share", "whole_share"))
    assert len(again) == 12 and max(alone, with_it) < 1 / 3 and sum(bool(row.get("warm")) for row in whole.values()) == 13
    assert f"in {alone:.2f} of the time after the baseline's profile, {with_it:.2f} with that profile (twelve of thirteen)" in said
    assert [f"{one['share']:.2f}" for one in again if one["share"] > 1 / 3] == ["0.38", "0.41"]
    assert "the product of 32768 x 64, 0.38, and the convolution with ReLU and bias, 0.41," in said
    assert f"Those searches took {short['AlexNet']['used_s']:.1f} and {short['2D']['used_s']:.1f} s." in said
    assert f"on an H100](search-runs/kernelbench-h100.md): {short['LeNet5']['speedup']:.2f}x in 60 s" in said
    again = short["LeNet5"]["warm"]
    assert f"The same came again in {again['share']:.2f} of the time after the baseline's profile, {again['whole_share']:.2f} with" in said
    assert f"mended since, and {whole['2D']['speedup']:.2f}x on an H100, below" in said
    unpack(LEDGERS, tmp_path)
    judged = {name: [row for row in Ledger(tmp_path / "ledgers" / f"{name}s" / "ledger.jsonl").rows if row.verdict is not None]
              for name in ("h100e2_kb_level3_5_equal-60", "h100e_kb_level1_95_equal-120", "h100e_kb_level1_86_equal-120")}
    alexnet, entropy, convolution = judged.values()
    assert f"AlexNet was judged within 60 s: {alexnet[0].verdict.speedup:.2f}x." in said
    assert "two judgements of it, {:.2f}x and {:.2f}x,".format(*(row.verdict.speedup for row in entropy[-2:])) in said
    assert f"judged once, in {convolution[0].elapsed_s:.0f} s: 1 GiB of inputs" in said and len(convolution) == 1

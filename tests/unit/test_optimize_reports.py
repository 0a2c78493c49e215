"""What an optimisation claims, and its pages: from rows and profiles made by hand. No torch, no waiting."""

from __future__ import annotations

import base64
import dataclasses
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

import builders
from kernelwright.judge.options import CONDITIONS
from kernelwright.model.base import Figure
from kernelwright.model.measurement import Measurement
from kernelwright.model.roofline import Ceiling
from kernelwright.model.trial import Hypothesis, PassPrediction, Screen
from kernelwright.model.verdict import Comparison, ConditionTiming, Experiment, Verdict
from kernelwright.model.workload import WorkloadRef
from kernelwright.optimize import ablation, claims, pictures, remains, summary
from kernelwright.optimize.ablation import LEFT_OF
from kernelwright.optimize.ending import Ending, Kept, not_decided
from kernelwright.optimize.hypothesis import beyond_prediction
from kernelwright.optimize.passes import CATALOGUE
from kernelwright.optimize.predicted import median_error_pct, realised
from kernelwright.optimize.search import line_of
from kernelwright.optimize.stages import claimed
from kernelwright.optimize.state import State
from kernelwright.optimize.summary import render_report, result_line, values, warnings_of, write_reports
from kernelwright.report.text import bullet


def verdict(name: str = "FASTER", speedup: float = 1.0, spread: float = 0.02, **changes: object) -> Verdict:
    interval = (speedup - spread, speedup + spread)
    before, after = (Measurement.of([ns] * 9, timer="cuda_events") for ns in (1e6, 1e6 / speedup))
    comparison = Comparison(reference=before, candidate=after, speedup=speedup, interval=interval, pairs=20, blocks=40,
                            smallest_detectable_effect_pct=1.0, method="made by hand")
    base = {"verdict": name, "precision": "equal", "speedup": speedup, "interval": interval, "comparison": comparison}
    return Verdict.model_validate({**base, "workload": "w", "candidate": "c", **changes})


def row(name: str, said: Verdict | None = None, *, precision: str = "equal", **changes: object) -> Experiment:
    own = tuple(part for part in name.split("+") if part != "no_grad")
    base = {"index": 1, "name": name, "passes": (*own, "no_grad"), "precision": precision, "candidate_file": f"candidates/{name}.py",
            "status": "judged", "verdict": said, "started_utc": "2026-01-02T03:05:05+00:00", "elapsed_s": 4.0}
    return Experiment.model_validate({**base, **changes})


def screened(name: str, speedup: float, *, precision: str = "equal", **changes: object) -> Experiment:
    screen = Screen(status="timed", speedup=speedup, interval=(speedup * 0.97, speedup * 1.03), pairs=40, reference_ns=1e6,
                    candidate_ns=1e6 / speedup)
    return row(name, None, precision=precision, status="screened", screen=screen, **changes)


def ending(folder: Path, rows: list[Experiment], kept: Experiment | None = None, *, precision: str = "equal", **changes: object) -> Ending:
    state = State(workload="net.py", workload_sha256="0" * 64, version=None, params={}, precision=precision, device="cuda",
                  device_name="NVIDIA H200", torch_version="2.11.0", seed=0, budget_s=600.0, started_utc="2026-01-02T03:04:05+00:00")
    after = builders.gpu_annotation(roofline=roofs("tf32")) if kept is not None else None
    return Ending(**{
        "workload": WorkloadRef(path=folder / "net.py", name="net"), "state": state, "folder": folder, "rows": rows, "confirmations": [],
        "kept": Kept(kept, kept) if kept is not None else None, "baseline": builders.gpu_annotation(roofline=roofs("float32")),
        "after": after, "used_s": 120.0, "interrupted": False, "notes": [], **changes})


def roofs(dtype: str, gbs: float = 4000.0):
    """4,000 GB/s; 50 TFLOP/s on the plain pipe, 400 on the tensor cores, 800 in 16 bits."""
    figures = {"dram": Figure(value=gbs, unit="GB/s", evidence="calibration", source="copy"),
               "plain:float32": Figure(value=50.0, unit="TFLOP/s", evidence="datasheet", source="sheet"),
               "tensor:tf32": Figure(value=400.0, unit="TFLOP/s", evidence="calibration", source="matmul")}
    ceilings = tuple(Ceiling(kind="bandwidth" if name == "dram" else "compute", name=name, measured=figure)
                     for name, figure in figures.items())
    peak = figures["plain:float32" if dtype == "float32" else "tensor:tf32"]
    other = tuple(Ceiling(kind="compute", name=f"tensor:{narrow}", measured=Figure(value=800.0, unit="TFLOP/s", evidence="calibration",
                                                                                  source="matmul")) for narrow in ("bfloat16", "float16"))
    return builders.roofline(dtype).model_copy(update={"ceilings": ceilings, "other_pipes": other, "peak_compute": peak,
                                                       "peak_bandwidth": figures["dram"]})


LADDER = [row("no_grad", verdict(speedup=1.1)), row("compile_default", verdict(speedup=1.3)),
          row("compile_max_autotune", verdict(speedup=1.6))]


def test_the_best_row_of_the_ladder_is_the_best_that_the_precision_allows(tmp_path):
    rows = [*LADDER, row("tf32", verdict(speedup=1.2), precision="tf32"),
            row("tf32+compile_default", verdict(speedup=2.0), precision="tf32"), row("bf16", verdict(speedup=1.4), precision="bf16"),
            row("channels_last+compile_default", verdict(speedup=9.0)),
            row("bf16+channels_last+compile_default", verdict(speedup=9.0), precision="bf16")]
    found = {level: claims.best_ladder_row(rows, level) for level in ("equal", "tf32", "bf16")}
    assert [(one.name, one.speedup) for one in found.values()] == [
        ("compile_max_autotune", 1.6), ("tf32+compile_default", 2.0), ("tf32+compile_default", 2.0)], "bf16's own rows are slower here"


def test_no_ladder_row_that_helps_leaves_the_original():
    rows = [row("no_grad", verdict("SLOWER", 0.8)), row("compile_default", verdict("AMBIGUOUS", 0.97, 0.05))]
    found = claims.best_ladder_row(rows, "equal")
    assert (found.name, found.speedup, found.undecided) == (claims.ORIGINAL, 1.0, 1)


def test_an_undecided_ladder_row_counts_against_the_claim_with_its_estimate():
    rows = [row("no_grad", verdict("FASTER", 1.05)), row("compile_default", verdict("AMBIGUOUS", 1.08, 0.1))]
    found = claims.best_ladder_row(rows, "equal")
    assert (found.name, found.speedup, found.undecided) == ("compile_default (undecided)", 1.08, 1)


def test_a_ladder_row_that_was_only_screened_still_counts_against_the_claim():
    found = claims.best_ladder_row([*LADDER, screened("compile_reduce_overhead", 1.9)], "equal")
    assert (found.name, found.speedup) == ("compile_reduce_overhead (screened only)", 1.9)
    behind = screened("bf16_autocast", 1.7, precision="bf16")
    assert behind.screen is not None
    behind = behind.model_copy(update={"screen": behind.screen.model_copy(update={"status": "hopeless"})})
    found = claims.best_ladder_row([*LADDER, behind], "bf16")
    assert (found.name, found.speedup) == ("bf16_autocast (screened only)", 1.7), "though it was far behind the best candidate"


def test_the_gain_over_a_ladder_row_takes_both_intervals_at_their_worst():
    ratio, (low, high) = claims.over(2.0, (1.9, 2.1), claims.BestRow("x", 1.6, (1.5, 1.7), 0))
    assert (ratio, low, high) == pytest.approx((1.25, 1.9 / 1.7, 2.1 / 1.5))


def test_gains_of_precision_and_of_equal_passes_stand_on_lines_of_their_own(tmp_path):
    kept = row("bf16+compile_max_autotune", verdict(speedup=4.8), precision="bf16")
    end = ending(tmp_path, [*LADDER, row("fold_conv_bn+compile_max_autotune", verdict(speedup=2.0)), kept], kept, precision="bf16")
    lines = {line["precision"]: line for line in claims.by_precision(end)}
    assert lines["equal"]["gain"].startswith("2.00x") and lines["equal"]["more"] == "n/a" and lines["equal"]["over"].startswith("1.25x [")
    assert lines["bf16"]["more"] == "2.40x" and lines["bf16"]["over"] == "the same" and lines["tf32"]["name"] == "none faster"
    words = claims.sentences(end)
    assert "At equal precision: fold_conv_bn+compile_max_autotune, 2.00x" in words[1] and "(bf16) gave 2.40x" in words[1]


def test_a_precisions_line_names_what_is_kept_though_ablation_left_something_of_it(tmp_path):
    """What is left is behind a candidate of higher precision, and does not take the whole's place."""
    kept = row("channels_last+tf32", verdict(speedup=2.0), precision="tf32")
    slim = row("tf32", verdict(speedup=1.85), precision="tf32").model_copy(update={"tags": {LEFT_OF: kept.name}})
    end = ending(tmp_path, [row("fold_conv_bn", verdict(speedup=1.9)), kept, slim], kept, precision="tf32")
    assert [line["name"] for line in claims.by_precision(end)] == ["fold_conv_bn", kept.name]
    alone = ending(tmp_path, [row("fold_conv_bn", verdict(speedup=1.2)), kept, slim], slim, precision="tf32")
    assert [line["name"] for line in claims.by_precision(alone)] == ["fold_conv_bn", slim.name]


def test_a_precision_is_not_given_what_equal_passes_gave_that_nobody_judged(tmp_path):
    kept = screened("fold_conv_bn+bf16", 3.5, precision="bf16").model_copy(update={"verdict": verdict(speedup=3.4)})
    end = ending(tmp_path, [row("no_grad", verdict("SLOWER", 0.98)), screened("fold_conv_bn", 1.4), screened("channels_last", 0.9), kept],
                 kept, precision="bf16")
    lines = {line["precision"]: line for line in claims.by_precision(end)}
    assert lines["equal"]["name"] == "none judged faster (fold_conv_bn 1.40x by its screen)" and lines["tf32"]["name"] == "none faster"
    assert lines["bf16"]["more"] == "2.50x (by their screens)"
    assert "(bf16) gave 2.50x (by their screens)." in claims.sentences(end)[1]
    alone = ending(tmp_path, [row("no_grad", verdict("SLOWER", 0.98)), screened("channels_last", 0.9), kept], kept, precision="bf16")
    assert [line["more"] for line in claims.by_precision(alone)] == ["n/a", "n/a", "3.40x"]


def test_a_claim_over_the_ladder_names_the_rows_that_were_not_timed(tmp_path):
    kept = row("fold_conv_bn+compile_default", verdict(speedup=2.0))
    late = Experiment(index=1, name="compile_reduce_overhead", passes=("compile_reduce_overhead", "no_grad"), precision="equal",
                      candidate_file="", status="out_of_budget")
    end = ending(tmp_path, [*LADDER, late, kept], kept)
    line = claims.by_precision(end)[0]
    assert line["rung"] == "compile_max_autotune 1.60x (not timed: compile_reduce_overhead, compile_max_autotune_no_cudagraphs)"
    assert line["over"].startswith("1.25x [")
    words = claims.sentences(end)[0]
    assert words.startswith("Best timed row") and "over it; not timed: compile_reduce_overhead, " in words
    refused = late.model_copy(update={"status": "not_applicable"})
    wrong = row("compile_max_autotune_no_cudagraphs", verdict("WRONG"))
    assert claims.best_ladder_row([*LADDER, refused, wrong], "equal").untimed == ()
    lower = claims.best_ladder_row([*LADDER, refused, row("tf32+compile_default", verdict(speedup=2.0), precision="tf32")], "tf32")
    assert lower.untimed == ("compile_max_autotune_no_cudagraphs", "compile_max_autotune"), "at that precision"


def test_a_row_of_the_ladder_that_was_kept_after_a_longer_judgement_is_not_held_against_its_first_one(tmp_path):
    kept = row("compile_max_autotune", verdict("AMBIGUOUS", 1.5, 0.6))
    again = row("optimized.py", verdict(speedup=1.6))
    end = ending(tmp_path, [*LADDER[:2], kept], kept)
    end = Ending(**{**end.__dict__, "kept": Kept(kept, again), "confirmations": [
        again.model_copy(update={"tags": {"role": "confirmation", "of": kept.name}})]})
    assert claims.sentences(end)[0].startswith("What was kept is the best row of the torch.compile ladder")
    assert claims.by_precision(end)[0]["over"] == "the same"


def test_nothing_is_claimed_over_a_ladder_of_which_nothing_was_timed(tmp_path):
    kept = row("fold_conv_bn", verdict(speedup=1.12))
    end = ending(tmp_path, [row("no_grad", verdict(speedup=1.04)), kept], kept)
    assert claims.by_precision(end)[0]["over"] == "n/a (no compile mode was timed)"
    assert claims.sentences(end) == ["No row of the torch.compile ladder was timed, so nothing is said over it."]


def test_two_judgements_that_are_apart_are_both_told_and_the_smaller_one_counts(tmp_path):
    kept, again = row("tf32+cuda_graph", verdict(speedup=3.6)), row("optimized.py", verdict(speedup=4.5))
    end = ending(tmp_path, [*LADDER, kept], kept)
    end = Ending(**{**end.__dict__, "kept": Kept(kept, again)})
    low, high = kept.verdict.interval, again.verdict.interval
    assert low[1] < high[0] and end.kept.least == (3.6, (low[0], high[1]))
    assert "is 3.60x [" in result_line(end) and " and 4.50x [" in result_line(end)
    assert "(confirmed by a second judgement, the two further apart than their intervals;" in result_line(end)
    assert "2.25x [" in claims.sentences(end)[0], "over the ladder's 1.60x"
    report = render_report(end)
    assert "The two judgements are further apart than their intervals: " in report and "us before and " in report
    near = Ending(**{**end.__dict__, "kept": Kept(kept, row("optimized.py", verdict("FASTER", 3.65, 0.2)))})
    assert near.kept.apart is None and near.kept.least[0] == 3.65 and "confirmed by a second judgement" in result_line(near)
    assert "further apart" not in render_report(near)
    assert Kept(row("x", verdict("AMBIGUOUS", 1.0)), again).apart is None, "what was too noisy to tell says nothing"


def test_gain_is_told_under_each_condition_that_was_timed(tmp_path):
    timings = (ConditionTiming(condition="warm", reference_ns=1e6, candidate_ns=5e5, speedup=2.0, interval=(1.9, 2.1)),
               ConditionTiming(condition="end to end", reference_ns=2e6, candidate_ns=1.5e6, speedup=1.33, interval=(1.3, 1.36)),
               ConditionTiming(condition="graph", not_applicable="candidate: operation not permitted when stream is capturing"))
    kept = row("cuda_graph", verdict(speedup=2.0, timings=timings))
    report = render_report(ending(tmp_path, [*LADDER, kept], kept))
    table = report.partition("## Gain by condition")[2].partition("\n## ")[0]
    assert "| alone: calls one after another, caches warm | 1000.00 | 500.00 | 2.00x [1.90, 2.10] |" in table
    assert "| end to end: inputs from the host, the call, outputs back | 2000.00 | 1500.00 | 1.33x [1.30, 1.36] |" in table
    assert "n/a (candidate: operation not permitted" in table
    assert "## Gain by condition" not in render_report(ending(tmp_path, LADDER))


def test_bounds_are_the_originals_work_over_each_roof(tmp_path):
    """110 GFLOP over 50 TFLOP/s are 2,200 us, over 400 TFLOP/s 275 us; 1.2 GB over 4,000 GB/s are 300 us. One call: 1,000 us, then 500."""
    kept = row("tf32", verdict(speedup=2.0), precision="tf32")
    end = ending(tmp_path, [*LADDER, kept], kept, precision="tf32")
    rows = {line["name"]: line for line in remains.bound_rows(end)}
    assert [rows["DRAM bandwidth"][key] for key in ("least", "before", "after")] == ["300.00", "30.0%", "60.0%"]
    assert rows["tensor pipe, tf32"]["least"] == "275.00" and rows["plain pipe, float32"]["before"] == "220.0%"
    reached = remains.reached(end)
    assert reached is not None and (reached["least"], reached["least_after"], reached["after"]) == ("2200.00", "300.00", "60.0%")


def test_what_was_kept_may_use_the_pipes_of_the_original(tmp_path):
    """A profile of one CUDA graph cannot tell that its convolutions use TF32: its bound is the original's still."""
    kept = row("cuda_graph", verdict(speedup=2.0))
    end = ending(tmp_path, [*LADDER, kept], kept)
    assert end.after is not None
    reached = remains.reached(dataclasses.replace(end, baseline=end.after, after=end.baseline))
    assert reached is not None and reached["least"] == reached["least_after"] == "300.00"
    assert reached["ceiling"] == reached["ceiling_after"] == "DRAM bandwidth" and reached["dtype"] == "tf32"


@pytest.mark.parametrize(("name", "precision", "gbs", "least", "after", "ceiling"), [
    ("cuda_graph", "equal", 4000.0, "2200.00", "440.0%", "float32 arithmetic"),
    ("split_products+cuda_graph", "equal", 4000.0, "412.50", "82.5%", "tensor pipe, float16, 3 products for one"),
    ("split_attention", "equal", 4000.0, "412.50", "82.5%", "tensor pipe, float16, 3 products for one"),
    ("tf32", "tf32", 40000.0, "275.00", "55.0%", "tensor pipe, tf32"),
    ("tf32", "tf32", 4000.0, "300.00", "60.0%", "DRAM bandwidth"),
    ("bf16+cuda_graph", "bf16", 40000.0, "137.50", "27.5%", "tensor pipe, bfloat16"),
    ("wide_outputs+tf32", "bf16", 40000.0, "137.50", "27.5%", "tensor pipe, bfloat16"),
    ("bf16", "bf16", 4000.0, "300.00", "at most 60.0%", "DRAM bandwidth"),
    ("bf16_autocast", "bf16", 4000.0, "300.00", "60.0%", "DRAM bandwidth"),
])
def test_what_was_kept_is_held_against_the_arithmetic_that_its_passes_bring(tmp_path, name, precision, gbs, least, after, ceiling):
    """110 GFLOP at 800 TFLOP/s are 137.5 us, three times that for products in three parts; 1.2 GB at 4,000 GB/s 300 us. Kept: 500 us.
    Only weights that lie in memory in 16 bits are fewer bytes than those counted."""
    kept = row(name, verdict(speedup=2.0), precision=precision)
    end = ending(tmp_path, [*LADDER, kept], kept, precision=precision, baseline=builders.gpu_annotation(roofline=roofs("float32", gbs)))
    reached = remains.reached(end)
    assert reached is not None and reached["least"] == "2200.00" and reached["ceiling"] == "float32 arithmetic"
    assert (reached["least_after"], reached["after"], reached["ceiling_after"]) == (least, after, ceiling)
    section = render_report(end).partition("## Distance to the roofs")[2].partition("\n## ")[0]
    assert f"What was kept reaches {after} of its own bound, {least} us for the same work (the ceiling that sets it: {ceiling})." in section
    assert ("how many it must move is not known" in section) == after.startswith("at most")
    assert ceiling == "float32 arithmetic" or f"| {ceiling} |" in section
    assert f"{after} of its own ({ceiling}, {least} us)" in pictures.render_html(values(end), [])


def test_where_the_peak_of_what_was_kept_is_not_known_its_bound_is_not_either(tmp_path):
    kept = row("bf16", verdict(speedup=2.0), precision="bf16")
    older = roofs("float32").model_copy(update={"other_pipes": ()})
    end = ending(tmp_path, [*LADDER, kept], kept, precision="bf16", baseline=builders.gpu_annotation(roofline=older))
    reached = remains.reached(end)
    assert reached is not None and reached["after"] == reached["ceiling_after"] == "n/a" and reached["least"] == "2200.00"
    assert "The bound of what was kept is not known" in render_report(end)


def test_the_stages_of_what_was_kept_are_held_against_its_arithmetic_too(tmp_path):
    """Its profile's flags say float32 (50 TFLOP/s), of which a stage in bfloat16 (800) reaches 640%: it is at 40% of its roof."""
    stages = (builders.stage("qk", 600.0, 60.0, compute_pct=640.0, bandwidth_pct=10.0, roof_pct=640.0, binding_roof="compute"),
              builders.stage("norm", 300.0, 30.0, compute_pct=32.0, bandwidth_pct=20.0, roof_pct=32.0, binding_roof="compute"),
              builders.stage("counted", 50.0, 5.0, compute_pct=9.0, roof_pct=70.0, binding_roof="L2", roof_evidence="counters"))
    kept = row("bf16", verdict(speedup=2.0), precision="bf16")
    end = ending(tmp_path, [*LADDER, kept], kept, precision="bf16", after=builders.gpu_annotation(stages=stages, roofline=roofs("float32")))
    named = {line["name"]: (line["of_roof"], line["left"]) for line in values(end)["left"]}
    assert named["qk"] == ("40.0% (compute)", "360.00") and named["norm"] == ("20.0% (memory)", "240.00")
    assert named["counted"] == ("70.0% (L2)", "15.00"), "counters tell which pipe was used"
    unknown = dataclasses.replace(end, baseline=builders.gpu_annotation(roofline=roofs("float32").model_copy(update={"other_pipes": ()})))
    assert {line["name"]: line["of_roof"] for line in values(unknown)["left"]}["qk"] == "n/a"
    plain = row("cuda_graph", verdict(speedup=2.0))
    assert remains.as_kept(dataclasses.replace(end, kept=Kept(plain, plain))) is end.after


def test_a_call_below_its_bound_makes_the_peaks_doubtful(tmp_path):
    kept = row("cuda_graph", verdict(speedup=2.0))
    end = ending(tmp_path, [*LADDER, kept], kept, baseline=builders.gpu_annotation(roofline=roofs("float32")))
    doubts = [one for one in warnings_of(end) if "takes less than its bound" in one]
    assert len(doubts) == 1 and "(440% of it)" in doubts[0] and doubts[0] in render_report(end)
    usual = ending(tmp_path, [*LADDER, kept], kept)
    assert not any("takes less than its bound" in one for one in warnings_of(dataclasses.replace(usual, baseline=usual.after)))


def test_every_pass_that_lowers_the_precision_says_what_it_multiplies_with():
    for item in CATALOGUE.values():
        assert item.precision == "equal" or item.products is not None, item.name
    assert {name for name, item in CATALOGUE.items() if item.products is not None and item.products.times > 1} == {
        "split_products", "split_matmuls", "split_attention", "split_attention_by_hand"}
    assert not CATALOGUE["split_products"].narrows_weights and CATALOGUE["bf16"].narrows_weights


def test_what_is_left_is_the_time_above_each_stages_roof(tmp_path):
    stages = (builders.stage("qk", 600.0, 60.0, roof_pct=90.0, binding_roof="compute"),
              builders.stage("softmax", 300.0, 30.0, roof_pct=20.0, binding_roof="memory"), builders.stage("odd", 50.0, 5.0, roof_pct=None))
    left = remains.left(builders.gpu_annotation(stages=stages))
    named = {line["name"]: line for line in left}
    assert left[0]["name"] != "qk", "the heaviest stage is nearly at its roof"
    assert named["softmax"]["left"] == "240.00" and named["softmax"]["of_roof"] == "20.0% (memory)" and named["qk"]["left"] == "60.00"
    assert named["odd"]["left"] == named["odd"]["of_roof"] == "n/a" and "the device waits" in named


def test_without_work_or_roofs_no_bound_is_shown(tmp_path):
    end = ending(tmp_path, LADDER, baseline=builders.no_peaks())
    assert remains.reached(end) is None and remains.bound_rows(end) == [] and "The bound of a call is not known" in render_report(end)


def prediction(name: str, low: float, high: float) -> PassPrediction:
    return PassPrediction(name=name, words="w", gain=(low, high))


def test_predictions_are_held_against_what_came_alone_in_the_whole_and_together():
    channels, graph = prediction("channels_last", 1.0, 2.0), prediction("cuda_graph", 1.0, 2.5)
    winner = row("channels_last+cuda_graph", verdict(speedup=4.0), prediction=(channels, graph))
    ablated = screened("ablation: channels_last+cuda_graph without cuda_graph", 2.6,
                       tags={"role": "ablation", "of": winner.name, "without": "cuda_graph"})
    found = realised([row("channels_last", verdict(speedup=1.25), prediction=(channels,)), screened("cuda_graph", 2.0, prediction=(graph,)),
                      winner, ablated, row("no_grad", verdict("AMBIGUOUS", 1.5, 1.0), prediction=(prediction("no_grad", 1.0, 1.1),)),
                      row("tf32", verdict(speedup=3.0), precision="tf32", prediction=(PassPrediction(name="tf32", words="no number"),))])
    assert [(one.name, one.context, one.by, round(one.realised, 3)) for one in found] == [
        ("channels_last", "alone", "judge", 1.25), ("cuda_graph", "alone", "screen", 2.0),
        ("channels_last+cuda_graph", "combination", "judge", 4.0), ("cuda_graph", "in the whole", "screen", 2.6)]
    assert found[2].predicted == pytest.approx((1.0, 5.0)) and [one.inside for one in found] == [True, True, True, False]
    assert found[0].error == pytest.approx(2**0.5 / 1.25) and median_error_pct(found) > 0 and median_error_pct([]) is None


def test_what_two_passes_say_of_the_same_time_is_predicted_once():
    """A GELU, compiled with `inductor_fuse_more`: both said that what is read and written again and again goes, 5.07x at most."""
    names = ("compile_default", "inductor_fuse_more", "cuda_graph")
    said = [PassPrediction(name=name, words="elementwise operators", gain=(1.0, 5.0)) for name in names[:2]]
    graph = prediction("cuda_graph", 1.0, 2.0)
    winner = row("+".join(names), verdict(speedup=6.0), prediction=(*said, graph))
    without = [screened(f"ablation: {winner.name} without {name}", 1.5, tags={"role": "ablation", "of": winner.name, "without": name})
               for name in names]
    found = realised([winner, *without])
    assert found[0].predicted == pytest.approx((1.0, 10.0)) and found[0].context == "combination"
    assert [one.name for one in found[1:]] == ["compile_default", "cuda_graph"], "beside the compiler the setting says nothing of its own"
    assert beyond_prediction([*said, graph], 11.1) and not beyond_prediction([*said, graph], 10.9)


def test_a_kept_pass_says_what_it_predicted_what_it_earns_and_whether_that_is_explained(tmp_path):
    kept = row("channels_last+cuda_graph", verdict(speedup=2.0), prediction=(prediction("cuda_graph", 1.25, 2.0),))
    ablated = screened("ablation: channels_last+cuda_graph without cuda_graph", 1.5,
                       tags={"role": "ablation", "of": kept.name, "without": "cuda_graph"})
    odd = Hypothesis(name="cuda_graph", result="unexplained", words="launches did not fall")
    report = render_report(ending(tmp_path, [*LADDER, kept], kept, ablation=[ablated], hypotheses=[odd], audit="Unexplained: it. Audited."))
    section = report.partition("## Kept")[2].partition("\n## ")[0]
    assert "| cuda_graph | not tried alone | screen 1.50x [1.46, 1.54] | 1.25 to 2.00x | unexplained: launches did not fall |" in section
    assert "\nUnexplained: it. Audited.\n" in section
    for said, words in (("yes", " |"), ("no", " (it earned nothing) |"), ("unknown", " (not decided whether it earns anything) |")):
        told = ablated.model_copy(update={"tags": {**ablated.tags, "earned": said}})
        assert f"| screen 1.50x [1.46, 1.54]{words}" in render_report(ending(tmp_path, [*LADDER, kept], kept, ablation=[told]))
    assert "| channels_last | not tried alone | not ablated: nothing was screened | n/a | not checked |" in section


def test_a_pass_that_was_not_ablated_says_why(tmp_path):
    kept = screened("channels_last+cuda_graph", 2.0).model_copy(update={"verdict": verdict(speedup=2.0), "status": "judged"})

    def without(**changes: object) -> Experiment:
        return screened("x", 1.5, tags={"role": "ablation", "of": kept.name, "without": "cuda_graph"}, **changes)

    def told(**changes: object) -> dict[str, str]:
        return {line["name"]: line["whole"] for line in claims.passes(ending(tmp_path, [kept], **{"kept": kept, **changes}))}

    assert told() == {"channels_last": "not ablated: no time", "cuda_graph": "not ablated: no time",
                      "no_grad": "not ablated: a condition of the others"}
    cut = without().model_copy(update={"screen": Screen(status="out_of_budget", reason="did not finish")})
    assert told(ablation=[cut])["cuda_graph"] == "not ablated: no time"
    wrong = without().model_copy(update={"screen": Screen(status="wrong"), "reason": "its outputs differ"})
    assert told(ablation=[wrong])["cuda_graph"] == "without it: its outputs differ"
    partner = without().model_copy(update={"screen": None, "reason": "the other passes need it"})
    assert told(ablation=[partner])["cuda_graph"] == "without it: the other passes need it"
    assert told(interrupted=True)["cuda_graph"] == "not ablated: the run was interrupted"
    first = row("tf32", verdict("SAME", 1.0), tags={"role": "confirmation", "of": "tf32"})
    assert told(confirmations=[first])["cuda_graph"] == "not ablated: the search had another winner"
    alone = screened("cuda_graph", 2.0).model_copy(update={"verdict": verdict(speedup=2.0), "status": "judged"})
    assert told(kept=alone)["cuda_graph"] == "not ablated: it stands alone"
    lasting = screened("keep_heap+channels_last", 2.0).model_copy(update={"verdict": verdict(speedup=2.0), "status": "judged"})
    assert ablation.to_drop(lasting) == ["channels_last"], "both would be timed under keep_heap"
    assert told(kept=lasting)["keep_heap"] == "not ablated: it holds for the whole process, in which both would be timed"
    report = render_report(ending(tmp_path, [kept], kept))
    assert "| channels_last | not tried alone | not ablated: no time |" in report


def test_only_the_best_of_many_screened_candidates_are_listed_and_the_others_counted(tmp_path):
    many = [screened(f"cudnn_benchmark{number}", 1 + number / 1000) for number in range(80)]
    end = ending(tmp_path, [*LADDER, *many], screened=80, screening_s=160.0)
    report = render_report(end)
    assert "50 more were screened only" in report and "cudnn_benchmark79 |" in report and "cudnn_benchmark3 |" not in report
    assert "80 candidates screened (80 timed), 3 judged, in 172 s: 29.0 candidates a minute." in report


def test_what_the_first_minutes_bought_counts_from_the_baselines_profile(tmp_path):
    known = screened("cuda_graph", 3.1, started_utc="2026-01-02T03:04:15+00:00")
    judged = row("cuda_graph", verdict(speedup=3.0), started_utc="2026-01-02T03:06:30+00:00")
    end = ending(tmp_path, [judged], history=[known, judged, screened("ablation", 9.0, tags={"role": "ablation"})])
    assert pictures.bought(end, judged=True) == {1: 1.0, 3: 3.0, 8: 3.0} and pictures.bought(end, judged=False) == {1: 3.1, 3: 3.1, 8: 3.1}
    assert "Best so far after 1 min: 3.10x known, 1.00x judged (" in render_report(end)


def test_what_is_itself_a_row_of_the_ladder_is_not_held_against_itself(tmp_path):
    kept, again = row("compile_max_autotune", verdict(speedup=1.6)), row("optimized.py", verdict(speedup=1.4))
    rest = [row(name, verdict(speedup=1.1)) for name in ("compile_reduce_overhead", "compile_max_autotune_no_cudagraphs")]
    end = ending(tmp_path, [*LADDER, *rest], kept)
    end = Ending(**{**end.__dict__, "kept": Kept(kept, again)})
    assert claims.sentences(end) == ["What was kept is the best row of the torch.compile ladder at equal precision."]
    assert claims.by_precision(end)[0]["over"] == "the same"


class Page(HTMLParser):
    """Tags, attributes and text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_data(self, data):
        self.words.append(data)


def test_report_html_is_one_page_that_loads_and_runs_nothing(tmp_path):
    said = (prediction("channels_last", 1.0, 2.0), prediction("cuda_graph", 1.0, 2.5))
    kept = row("channels_last+cuda_graph", verdict(speedup=2.0), prediction=said)
    end = ending(tmp_path, [*LADDER, kept, screened("fold_conv_bn", 1.2)], kept)
    write_reports(end)
    page = Page((tmp_path / "report.html").read_text())
    assert not {tag for tag, _ in page.tags} & {"script", "iframe", "object", "link", "base", "form"}
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on") or name == "style"]
    policy = next(attributes["content"] for _, attributes in page.tags if attributes.get("http-equiv"))
    assert "default-src 'none'" in policy and "unsafe" not in policy
    images = [attributes for tag, attributes in page.tags if tag == "img"]
    assert len(images) == 4 and all(image["alt"] for image in images)
    for image in images:
        root = ElementTree.fromstring(base64.b64decode(image["src"].removeprefix("data:image/svg+xml;base64,")))
        assert root.tag.endswith("svg") and not list(root.iter("{http://www.w3.org/2000/svg}script"))
    assert sorted(path.name for path in (tmp_path / "figures").iterdir()) == ["gains.svg", "predictions.svg", "progress.svg", "where.svg"]
    report = (tmp_path / "report.md").read_text()
    for link in re.findall(r"!\[[^]]*\]\(([^)]+)\)", report):
        assert (tmp_path / link).is_file()
    assert "(figures/gains.svg)" in report and "channels_last+cuda_graph (kept)" in (tmp_path / "figures" / "gains.svg").read_text()
    first = {path.name: path.read_bytes() for path in (tmp_path / "figures").iterdir()}
    write_reports(end)
    assert first == {path.name: path.read_bytes() for path in (tmp_path / "figures").iterdir()}, "equal runs draw equal figures"


def test_hostile_names_stay_text_on_every_page(tmp_path):
    kept = row("cuda_graph", verdict(speedup=2.0), reason=builders.HOSTILE)
    bad = row("tf32", None, status="failed", reason=builders.HOSTILE, precision="tf32")
    end = ending(tmp_path, [*LADDER, kept, bad], kept, baseline=builders.hostile(), after=builders.hostile(), notes=[builders.HOSTILE])
    end = Ending(**{**end.__dict__, "workload": WorkloadRef(path=tmp_path / "net.py", name=builders.HOSTILE)})
    write_reports(end)
    text = (tmp_path / "report.html").read_text()
    assert "<script" not in text and "\x1b" not in text and "\u202e" not in text
    assert any("<script>alert(1)</script>" in words for words in Page(text).words), "it is shown, as text"
    assert "<script" not in (tmp_path / "report.md").read_text().replace("\\<script", "")
    for figure in (tmp_path / "figures").iterdir():
        assert not list(ElementTree.fromstring(figure.read_bytes()).iter("{http://www.w3.org/2000/svg}script"))


def test_without_matplotlib_everything_else_is_written_and_said(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "kernelwright.report.optimize_figure", None)
    monkeypatch.delattr("kernelwright.report.optimize_figure", raising=False)
    write_reports(ending(tmp_path, LADDER))
    assert "The figures were not drawn" in (tmp_path / "report.md").read_text() and not (tmp_path / "figures").exists()
    assert "<img" not in (tmp_path / "report.html").read_text()


def test_every_value_of_the_page_is_in_report_md_too(tmp_path):
    kept = row("cuda_graph", verdict(speedup=2.0))
    view = values(ending(tmp_path, [*LADDER, kept], kept))
    assert {"conditions", "by_precision", "bounds", "left", "reached", "ladder", "pace"} <= set(view)
    report = render_report(ending(tmp_path, [*LADDER, kept], kept))
    assert f"| {claims.ORIGINAL} | equal | n/a | n/a | 1.00x |" in report
    assert "| compile_reduce_overhead | equal | n/a | n/a | n/a | not tried |" in report, "the whole ladder is shown"


def test_only_the_confirmation_is_timed_under_further_conditions():
    assert claimed(Path("out/optimized.py")) == CONDITIONS and claimed(Path("out/candidates/01_no_grad.py")) == ()


def test_the_claim_over_a_row_of_the_ladder_is_the_figure_of_the_two_in_turns_where_there_is_one(tmp_path):
    first, second = (row(name, verdict("FASTER", speedup, spread=spread), ladder_row=True) for name, speedup, spread in (
        ("compile_default", 2.15, 0.005), ("compile_max_autotune", 2.16, 0.06)))
    turns = screened("compile_max_autotune beside compile_default", 1.02, tags={"role": "beside", "of": second.name, "against": first.name})
    apart, beside = (ending(tmp_path, [first, second], first, history=[first, second, *more]) for more in ((), (turns,)))
    assert "what was kept is 1.00x [0.97, 1.03] over it" in claims.sentences(apart)[0]
    assert "what was kept is 0.98x [0.95, 1.01] (timed in turns with it) over it" in claims.sentences(beside)[0]
    assert claims.by_precision(beside)[0]["name"] == first.name and "in turns" in claims.by_precision(beside)[0]["over"]


def test_a_timing_in_turns_that_chose_what_is_kept_is_no_claim(tmp_path):
    """Of many equal pairs it keeps the luckiest."""
    first, second = (row(name, verdict("FASTER", 2.15), ladder_row=True) for name in ("compile_default", "fold_conv_bn"))
    turns = screened("x", 1.04, tags={"role": "beside", "of": second.name, "against": first.name})
    end = ending(tmp_path, [first, second], second, history=[first, second, turns])
    assert "what was kept is 1.00x [0.98, 1.02] over it" in claims.sentences(end)[0]


def test_the_row_of_a_precision_is_the_one_that_was_faster_in_turns(tmp_path):
    first, second = row("compile_default", verdict("FASTER", 2.15, spread=0.01)), row("cuda_graph", verdict("FASTER", 2.15, spread=0.06))
    turns = screened("x", 1.04, tags={"role": "beside", "of": second.name, "against": first.name}).model_copy(update={
        "screen": Screen(status="timed", speedup=1.04, interval=(1.03, 1.05), pairs=40)})
    assert claims.by_precision(ending(tmp_path, [first, second], second, history=[first, second]))[0]["name"] == first.name
    assert claims.by_precision(ending(tmp_path, [first, second], second, history=[first, second, turns]))[0]["name"] == second.name


@pytest.mark.parametrize(("count", "more"), [(3, ""), (30, ""), (30, ", and 12 more")])
def test_what_was_not_begun_is_told_in_whole_items(tmp_path, count, more):
    """`freeze_weights+compile_default (e…pected 1.36x)`: the name of one, the figure of another."""
    items = [f"pass_{place:02d}+compile_default (expected {1 + place / 100:.2f}x)" for place in range(count)]
    why = "not begun with 4 s left (what won before did so again: nothing new was looked for): "
    last = row("not begun", status="out_of_budget", reason=why + ", ".join(items) + more, tags={"role": "not begun"})
    [line] = not_decided(ending(tmp_path, [], history=[last]))
    assert line.startswith(f"N{why[1:]}{items[0]}") and bullet(line) == line, "nothing is cut out of it"
    shown = [item for item in items if item in line]
    assert shown == items[:len(shown)] and len(shown) >= 3
    left = count - len(shown) + (12 if more else 0)
    assert (f"{shown[-1]}, and {left} more. next.json" if left else f"{shown[-1]}. next.json") in line


def test_a_judgement_that_did_not_end_is_told_and_its_seconds_count(tmp_path):
    timed = Screen(status="timed", speedup=1.01, interval=(0.99, 1.03), pairs=9, elapsed_s=3.0)
    cut = row("keep_heap", status="screened", reason="not judged: the time was up", elapsed_s=12.0).model_copy(update={"screen": timed})
    gone = row("fold_conv_bn", status="not_applicable").model_copy(update={"screen": Screen(status="not_applicable", elapsed_s=1.0)})
    end = ending(tmp_path, [cut, gone], screened=2, screening_s=4.0)
    assert summary._none_judged(end) == \
        "by the screens none was clearly faster (1 timed), and the judgement of keep_heap did not end in time"
    wrong = row("compile_default", verdict("WRONG"))
    assert summary.result_line(ending(tmp_path, [wrong, cut])).startswith(
        "Nothing better than the original was proved (1 candidate judged, the judgement of keep_heap did not end in time; ")
    assert summary.result_line(ending(tmp_path, [wrong, gone])).startswith(
        "Nothing better than the original was found (1 candidate judged; ")
    assert summary.pace(end) == "2 candidates screened (1 timed), 0 judged, in 16 s: 7.5 candidates a minute."
    assert line_of(cut).endswith("keep_heap: screen 1.01x: not judged: the time was up (12 s)")

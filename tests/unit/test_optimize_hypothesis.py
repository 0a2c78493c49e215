"""Predictions of passes against the profiles before and after."""

from __future__ import annotations

import dataclasses

import pytest

import builders
from kernelwright.model.profile import Profile
from kernelwright.model.trial import ExpectedMove, PassPrediction
from kernelwright.optimize.hypothesis import IDLE, LAUNCHES, beyond_prediction, check, in_the_whole, quantity
from kernelwright.optimize.passes import CATALOGUE
from optimizing import context, profile_of


def test_predictions_are_confirmed_missed_unexplained_or_not_checked():
    before, after = profile_of("cuda", ("aten::mm", "aten::add")), profile_of("cuda", ("aten::mm",))
    ratio = quantity("kernel time", after, "aten") / quantity("kernel time", before, "aten")
    assert ratio == pytest.approx(0.5)

    def said(low: float, high: float, gain=(1.0, 1.5), what: str = "kernel time") -> PassPrediction:
        move = ExpectedMove(quantity=what, low=low, high=high, operators="aten")
        return PassPrediction(name="p", words="w", gain=gain, moves=(move,))

    def result(one: PassPrediction, gain: float | None = None) -> str:
        return check([one], before, after, {"p": gain} if gain else {})[0].result

    assert result(said(0.0, ratio + 0.1)) == "confirmed" and result(said(0.0, ratio + 0.1), 1.4) == "confirmed"
    assert result(said(0.9, 1.0)) == "not seen" and result(said(0.9, 1.0), 1.3) == "unexplained", "it gains, but not so"
    assert result(said(0.0, 1.0), 2.0) == "unexplained", "more than it said it could"
    assert result(said(0.0, 1.0, what="DRAM bytes")) == "not checked", "without counters nothing is known"
    assert check([said(0.0, 1.0)], before, None)[0].result == "not checked"
    silent = said(0.0, 1.0, gain=None, what="DRAM bytes")
    assert [result(silent, gain) for gain in (1.05, 1.15)] == ["not checked", "unexplained"], "it said nothing that could be checked"
    assert result(said(0.0, ratio + 0.1, gain=None), 1.15) == "confirmed"


def test_only_a_gain_beyond_all_predictions_is_surprising():
    one, two = PassPrediction(name="a", words="", gain=(1.0, 1.5)), PassPrediction(name="b", words="", gain=(1.0, 1.2))
    assert beyond_prediction([one, two], 2.1) and not beyond_prediction([one, two], 1.9)
    assert not beyond_prediction([one, PassPrediction(name="c", words="")], 9.0) and not beyond_prediction([], 9.0)


def waiting(busy_us: float, idle_share_pct: float | None) -> Profile:
    """One step in which the device works so long and does nothing for that share of the call."""
    profile = profile_of("cuda", ("aten::mm",))
    assert profile.timeline is not None
    changes = {"steps": 1, "busy_ns": round(busy_us * 1e3), "measured_ns": round(busy_us * 1e3), "idle_share_pct": idle_share_pct}
    return profile.model_copy(update={"timeline": profile.timeline.model_copy(update=changes)})


def test_idle_time_is_of_a_call_whatever_becomes_of_the_work():
    """Seen on an H200: 110 us of 456 us idle, then 65 us of 211 us: less waiting, though its share rose from 24% to 31%."""
    before, after = waiting(346.0, 24.0), waiting(146.0, 31.0)
    assert quantity(IDLE, before) == pytest.approx(109.3e3, rel=0.01) and quantity(IDLE, after) == pytest.approx(65.6e3, rel=0.01)
    graph = PassPrediction(name="cuda_graph", words="w", gain=(1.0, 1.3), moves=(ExpectedMove(quantity=IDLE, low=0.0, high=0.7),))
    assert check([graph], before, after)[0].result == "confirmed"
    assert quantity(IDLE, waiting(10.0, None)) is None and quantity(IDLE, waiting(0.0, 100.0)) is None
    assert quantity(IDLE, before, "aten") is None, "no operator's own"


def test_kernels_are_counted_also_where_one_launch_starts_many():
    profile = profile_of("cuda", ("aten::mm", "aten::add", "aten::copy_"))
    copy = profile.operators[2].kernels[0].model_copy(update={"category": "memcpy"})
    operators = (*profile.operators[:2], profile.operators[2].model_copy(update={"kernels": (copy,)}))
    graphed = profile.model_copy(update={"operators": operators, "unattributed_kernels": (), "timeline": profile.timeline.model_copy(
        update={"steps": 1, "launches": 1, "kernels_total": 3})})
    assert quantity("kernels", graphed) == 2.0 and quantity("kernels", graphed, "add|copy") == 1.0, "the copies of a graph are no kernels"
    fewer = PassPrediction(name="fold", words="w", moves=(ExpectedMove(quantity="kernels", low=0.0, high=0.99),))
    assert check([fewer], graphed, graphed)[0].result == "not seen", "a CUDA graph alone takes no kernel away"
    on_cpu = profile.model_copy(update={"operators": builders.operators(("aten::mm",), 2, 300, on_cpu=True), "unattributed_kernels": ()})
    assert check([fewer], on_cpu, on_cpu)[0].result == "not checked"


def of_kernels(*durations_us: float) -> Profile:
    """One step with so many kernels."""
    plain = profile_of("cuda", tuple(f"aten::op{place}" for place in range(len(durations_us))))
    operators = tuple(one.model_copy(update={"kernels": (one.kernels[0].model_copy(update={"duration_ns": round(us * 1e3)}),)})
                      for one, us in zip(plain.operators, durations_us, strict=False))
    whole_ns = round(sum(durations_us) * 1e3)
    timeline = plain.timeline.model_copy(update={"steps": 1, "busy_ns": whole_ns, "measured_ns": whole_ns})
    return plain.model_copy(update={"operators": operators, "unattributed_kernels": (), "timeline": timeline})


FOLD = PassPrediction(name="fold_conv_bn", words="w", gain=(1.0, 1.2), moves=(
    ExpectedMove(quantity="kernels", low=0.0, high=0.99), ExpectedMove(quantity="kernel time", low=1 / 1.2, high=0.95)))


@pytest.mark.parametrize("beside", ["compile_default", "compile_reduce_overhead", "compile_max_autotune"])
def test_what_a_compile_mode_fuses_beyond_its_prediction_makes_no_other_pass_unexplained(beside):
    moves = (ExpectedMove(quantity=IDLE, low=0.0, high=0.5),) if beside != "compile_default" else ()
    mode = PassPrediction(name=beside, words="w", gain=(1.0, 1.08), moves=moves)
    before, after = of_kernels(100, 100, 100), of_kernels(80, 70)
    assert check([FOLD, mode], before, after, {"fold_conv_bn": 1.1})[0].result == "confirmed"
    assert check([FOLD], before, after, {"fold_conv_bn": 1.1})[0].result == "unexplained", "alone it can't have halved them"


def test_kernels_that_another_kept_pass_adds_say_nothing_of_this_one():
    before, more = of_kernels(100, 100), of_kernels(60, 60, 60)
    cast = PassPrediction(name="bf16_autocast", words="w", gain=(1.0, 4.0))
    graph = PassPrediction(name="cuda_graph", words="w", gain=(1.0, 1.1), moves=(ExpectedMove(quantity=IDLE, low=0.0, high=0.5),))
    assert [move.result for move in check([FOLD, cast], before, more)[0].moves] == ["not measured", "seen"]
    assert [move.result for move in check([FOLD, graph], before, more)[0].moves] == ["not seen", "seen"], "a graph adds none"
    assert check([FOLD], before, before)[0].result == "not seen", "nothing moved"


def test_the_copies_of_a_graph_are_no_kernels_time():
    before, after = of_kernels(100, 100), of_kernels(90, 90, 30)
    copy = after.operators[2].kernels[0].model_copy(update={"category": "memcpy"})
    after = after.model_copy(update={"operators": (*after.operators[:2], after.operators[2].model_copy(update={"kernels": (copy,)}))})
    assert quantity("kernel time", after) / quantity("kernel time", before) == pytest.approx(0.9)


def test_what_other_kept_passes_said_of_the_device_s_work_may_be_in_the_kernel_time_too():
    before, after = waiting(300.0, 10.0), waiting(141.0, 10.0)
    attention = PassPrediction(name="attention", words="w", gain=(1.0, 1.34),
                               moves=(ExpectedMove(quantity="kernel time", low=0.75, high=1.0),))
    products, graph = (PassPrediction(name=name, words="w", gain=(1.0, 1.7), moves=(ExpectedMove(quantity=what, low=0.0, high=9.0),))
                       for name, what in (("products", "kernels"), ("graph", IDLE)))
    assert check([attention], before, after)[0].result == "not seen"
    assert check([attention, graph], before, after)[0].result == "not seen", "a graph takes nothing from the kernels"
    together = check([attention, products, graph], before, after)[0]
    assert together.result == "confirmed" and together.moves[0].low == pytest.approx(0.75 / 1.7)


def test_waiting_that_goes_is_worth_more_the_less_work_the_others_leave():
    """Seen on an H200: 12% of the call idle, products split for tensor cores 3.3x as fast, and the graph then gives 2.7x."""
    graph = PassPrediction(name="graph", words="w", gain=(1.0, 1.14), moves=(ExpectedMove(quantity=IDLE, low=0.0, high=0.5),))
    products = PassPrediction(name="products", words="w", gain=(1.0, 3.7), moves=(ExpectedMove(quantity="kernel time", low=0.2, high=1.0),))
    silent = PassPrediction(name="silent", words="w", gain=None)
    assert in_the_whole(graph, [graph]) == (1.0, 1.14) and in_the_whole(products, [products, graph]) == (1.0, 3.7)
    assert in_the_whole(graph, [graph, products]) == pytest.approx((1.0, 1.14 * 3.7)) and in_the_whole(graph, [graph, silent]) is None
    same = products.model_copy(update={"name": "same"})
    assert in_the_whole(graph, [graph, products, same]) == pytest.approx((1.0, 1.14 * 3.7)), "the same time can't go twice"
    loads = PassPrediction(name="loads", words="batches", gain=(1.0, 2.0), moves=(ExpectedMove(quantity=IDLE, low=0.0, high=0.9),))
    assert in_the_whole(graph, [graph, loads]) == pytest.approx((1.0, 1.14 * 2.0)), "nor is there other waiting left"
    assert in_the_whole(loads, [graph, loads]) == pytest.approx((1.0, 2.0 * 1.14))
    assert in_the_whole(graph, [graph, loads, loads.model_copy(update={"name": "silent", "words": "x", "gain": None})]) is None
    before, after = waiting(250.0, 12.0), waiting(80.0, 5.0)
    assert [one.result for one in check([products, graph], before, after, {"graph": 2.7})][1] == "confirmed"
    assert check([graph], before, after, {"graph": 2.7})[0].words == "gains 2.70x, more than predicted"


@pytest.mark.parametrize(("idle_us", "left"), [(200.0, 0.5), (74.0, 50 / 74), (20.0, 2.5)])
def test_a_graph_leaves_what_a_replay_waits_in_any_case_and_as_many_launches_as_it_has_edges(idle_us, left):
    """Convolutions on an H100: 74 us of a call idle before, 48 with everything in one graph: three launches in the place of 29."""
    plain = context()
    timing = plain.profile.timing
    busy_us = timing.median_ns / 1e3 - idle_us
    timeline = plain.profile.timeline.model_copy(update={
        "steps": 1, "busy_ns": round(busy_us * 1e3), "launches": 29, "idle_share_pct": 1e5 * idle_us / timing.median_ns})
    before = plain.profile.model_copy(update={"timeline": timeline})
    given = dataclasses.replace(plain, profile=before)
    said = {move.quantity: move for move in CATALOGUE["cuda_graph"].prediction(given).moves}
    assert (said[IDLE].low, said[IDLE].high) == (0.0, pytest.approx(left, rel=0.01))
    edges = len(plain.facts.inputs) + len(plain.facts.outputs)
    assert said[LAUNCHES].high == pytest.approx((1 + edges) / 29)
    row = PassPrediction(name="cuda_graph", words="w", gain=(1.0, 1.2), moves=tuple(
        ExpectedMove(quantity=move.quantity, low=move.low, high=move.high) for move in said.values()))
    for launches, result in ((1 + edges, "seen"), (2 + edges, "not seen")):
        after = before.model_copy(update={"timeline": timeline.model_copy(update={"launches": launches})})
        assert {move.quantity: move.result for move in check([row], before, after)[0].moves}[LAUNCHES] == result


def test_where_launches_are_as_few_already_a_graph_says_nothing_of_them():
    plain = context()
    few = plain.profile.timeline.model_copy(update={"steps": 1, "launches": 2})
    given = dataclasses.replace(plain, profile=plain.profile.model_copy(update={"timeline": few}))
    assert LAUNCHES not in {move.quantity for move in CATALOGUE["cuda_graph"].prediction(given).moves}

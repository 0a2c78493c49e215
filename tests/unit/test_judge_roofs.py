"""Impossible speed, and what two pairs of processes say together."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelwright.judge.confirm_pair import asks_again, combine, together
from kernelwright.judge.roofs import Finding, Need, Roofs, examine
from kernelwright.judge.statistics import decide, estimate, plan_looks, settled
from kernelwright.model.measurement import Measurement
from kernelwright.model.verdict import Comparison
from kernelwright.roofline.knowledge import datasheet

H200 = Roofs(datasheet("NVIDIA H200"), 0, 50 * 2**20)
CPU = Roofs(None, 2, None)
GIB = float(2**30)


def examined(need, roofs=H200, **changes):
    asked = {"candidate_ns": 1e6, "reference_ns": 1e9, "own_output_bytes": need.output_bytes, "ring": 1, "precision": "equal",
             "all_float32": True, **changes}
    return examine(need, roofs, **asked)


def test_outputs_written_faster_than_all_multiprocessors_can_store_are_a_cheat():
    need = Need(4 * GIB, 4 * GIB, None, None)  # 4 GiB at 33.5 TB/s: 128 us
    assert examined(need, candidate_ns=20e3).cheat.startswith("impossible speed: 20 us a call, and writing 4.1e+03 MiB of outputs")
    assert examined(need, candidate_ns=100e3) == Finding(), "within the margin"


def test_outputs_that_are_views_are_only_not_believed():
    found = examined(Need(4 * GIB, 4 * GIB, None, None), candidate_ns=20e3, own_output_bytes=0.0)
    assert found.cheat is None and "said to be views" in found.doubt


def test_less_than_a_launch_is_a_cheat_unless_the_reference_has_no_more():
    assert "one launch takes at least 0.5 us" in examined(Need(4.0, 4.0, None, None), candidate_ns=100.0).cheat
    assert examined(Need(4.0, 4.0, None, None), candidate_ns=100.0, reference_ns=200.0) == Finding()
    assert examined(Need(0.0, 4.0, None, None), candidate_ns=100.0) == Finding(), "a workload whose output is a view launches nothing"


def test_a_cpu_has_its_stores():
    assert "with the stores of 2 cores" in examined(Need(GIB, GIB, None, None), CPU, candidate_ns=1e5).cheat  # at least 1.3 ms
    assert examined(Need(GIB, GIB, 2 * GIB, 1e15), CPU, candidate_ns=2e6) == Finding(), "no datasheet, no other claim"


def test_bytes_that_cannot_lie_in_the_cache_raise_a_doubt():
    need = Need(1024.0, GIB, GIB, None)  # 0.9 GiB beyond the cache at 4.8 TB/s: 203 us
    assert "moving 924 MiB to and from memory at 4800 GB/s" in examined(need, candidate_ns=150e3).doubt
    assert examined(need, candidate_ns=210e3) == Finding()
    assert examined(need, candidate_ns=150e3, reference_ns=180e3) == Finding(), "the reference needs no more either"


def test_data_that_may_lie_in_the_cache_make_no_claim():
    assert examined(Need(1024.0, 2**20, 2 * 2**20, None), candidate_ns=2e3, ring=16) == Finding()
    assert examined(Need(1024.0, 2**20, 90 * 2**20, None), candidate_ns=2e3, ring=1) == Finding()


def test_fewer_operations_than_the_references_raise_a_doubt_and_accuse_nobody():
    need = Need(4 * 2**20, 4 * 2**20, 8 * 2**20, 494.5e9)  # 1 ms at TF32's peak
    found = examined(need, candidate_ns=0.5e6)
    assert found.cheat is None and "494 GFLOP at 494.5 TFLOP/s" in found.doubt
    assert examined(need, candidate_ns=0.5e6, precision="bf16") == Finding() == examined(need, candidate_ns=0.5e6, all_float32=False)


TIMES = st.floats(1e3, 1e9)


BYTES = st.floats(0, 2e9)


@given(BYTES, BYTES, st.floats(0, 1e15), TIMES, TIMES, st.integers(1, 16), st.sampled_from(["equal", "tf32", "bf16"]))
def test_a_candidate_at_the_datasheets_peaks_or_slower_is_never_doubted(outputs, inputs, flops, extra_ns, reference_ns, ring, precision):
    """It moves everything once at the memory's bandwidth and computes at the fastest peak of its precision, one after the other."""
    sheet = H200.sheet
    peak = 494.5 if precision == "equal" else 989.5 * 2
    honest_ns = (inputs + outputs) / sheet.bandwidth_gbs + flops / (peak * 1e3) + extra_ns
    need = Need(outputs, inputs, inputs + outputs, flops)
    assert examined(need, candidate_ns=honest_ns, reference_ns=reference_ns, ring=ring, precision=precision) == Finding()


def comparison(speedup, low, high):
    side = Measurement.of([1e6] * 9, timer="perf_counter")
    return Comparison(reference=side, candidate=side, speedup=speedup, interval=(low, high), smallest_detectable_effect_pct=2.0, pairs=20,
                      blocks=40, method="quads")


def test_two_pairs_that_agree_stand_with_the_hull_of_their_intervals():
    both = combine("FASTER", comparison(1.2, 1.15, 1.25), "FASTER", comparison(1.3, 1.22, 1.35), "cuda")
    assert both.decision == "FASTER" and both.comparison.interval == (1.15, 1.35)
    assert both.comparison.speedup == pytest.approx(math.sqrt(1.2 * 1.3)) and both.comparison.pairs == 40
    assert "FASTER 1.200x [1.150, 1.250] and FASTER 1.300x [1.220, 1.350]" in both.words


@pytest.mark.parametrize("again", ["SLOWER", "SAME", "AMBIGUOUS"])
def test_two_pairs_that_disagree_are_ambiguous_with_both_figures(again):
    both = combine("FASTER", comparison(1.2, 1.15, 1.25), again, comparison(1.0, 0.95, 1.05), "cuda")
    assert both.decision == "AMBIGUOUS"
    assert both.words.startswith("not confirmed by two pairs of processes, started in opposite orders: FASTER 1.200x")
    assert f"and {again} 1.000x" in both.words


@pytest.mark.parametrize(("first", "second", "expected"), [
    (("SLOWER", 0.975, (0.97, 0.98)), ("SAME", 0.988, (0.983, 0.993)), "SLOWER"),  # one pair's luck hid a part of 2%
    (("SAME", 0.988, (0.983, 0.993)), ("SLOWER", 0.975, (0.97, 0.98)), "SLOWER"),
    (("SAME", 0.988, (0.983, 0.993)), ("SAME", 0.985, (0.981, 0.992)), "SAME"),  # neither decides by itself
    (("FASTER", 1.02, (1.011, 1.03)), ("SAME", 0.995, (0.991, 0.999)), "AMBIGUOUS"),
    (("FASTER", 1.02, (1.011, 1.03)), ("SLOWER", 0.98, (0.97, 0.989)), "AMBIGUOUS"),
    (("FASTER", 1.013, (1.0101, 1.016)), ("SAME", 1.003, (1.001, 1.005)), "AMBIGUOUS"),  # together no more than processes differ
    (("AMBIGUOUS", 1.02, (1.002, 1.04)), ("SAME", 1.0, (0.99, 1.01)), "AMBIGUOUS"),
])
def test_a_pairs_own_luck_neither_hides_nor_makes_a_difference(first, second, expected):
    assert together(first, second, "cuda") == expected


def test_a_cpu_where_processes_differ_by_more_needs_more():
    both = combine("SLOWER", comparison(0.985, 0.98, 0.989), "SLOWER", comparison(0.984, 0.98, 0.988), "cpu")
    assert both.decision == "AMBIGUOUS" and "no more than the 2% that two processes of one program may differ by here" in both.words
    assert combine("SLOWER", comparison(0.985, 0.98, 0.989), "SLOWER", comparison(0.984, 0.98, 0.988), "cuda").decision == "SLOWER"
    assert combine("SLOWER", comparison(0.955, 0.94, 0.97), "SLOWER", comparison(0.951, 0.94, 0.96), "cpu").decision == "SLOWER"


@pytest.mark.parametrize(("device", "luck", "noise", "slower_by"), [("cuda", 0.004, 0.005, 0.02), ("cpu", 0.006, 0.01, 0.05)])
def test_simulated_judgements_rarely_err_and_mostly_find(device, luck, noise, slower_by):
    """luck: standard deviation between pairs of processes; noise: between quads. As good or worse than measured on quiet machines."""
    rng = np.random.default_rng(2)

    def judged(effect):
        pairs = []
        for _ in range(2):
            values = -effect + rng.normal(0, luck) + rng.normal(0, noise, 40)
            looks = plan_looks(40)
            for look in looks:
                found = estimate(values[:look], len(looks))
                if settled(found):
                    break
            pairs.append((decide(found), found.speedup, (found.low, found.high)))
            if not asks_again(*pairs[0]):
                return pairs[0][0]
        return together(*pairs, device)

    assert sum(judged(0.0) in ("FASTER", "SLOWER") for _ in range(300)) <= 3
    assert sum(judged(math.log1p(slower_by)) == "SLOWER" for _ in range(100)) >= 93


@given(*[st.tuples(st.sampled_from(["FASTER", "SLOWER", "SAME", "AMBIGUOUS"]), st.floats(0.5, 2), st.floats(0, 0.3))] * 2)
def test_nothing_is_faster_or_slower_that_either_pair_contradicts(one, two):
    pairs = [(decision, speedup, (speedup * (1 - half), speedup * (1 + half))) for decision, speedup, half in (one, two)]
    said = together(*pairs, "cuda")
    assert said == together(*reversed(pairs), "cuda")
    if said == "FASTER":
        assert all(low > 1 for _, _, (low, _) in pairs) and any(decision == "FASTER" for decision, _, _ in pairs)
    if said == "SLOWER":
        assert all(high < 1 for _, _, (_, high) in pairs) and any(decision == "SLOWER" for decision, _, _ in pairs)


def test_a_second_pair_is_asked_for_where_it_could_matter():
    assert asks_again("SLOWER", 0.97, (0.96, 0.98)) and asks_again("SAME", 0.988, (0.983, 0.993))
    assert not asks_again("SAME", 1.003, (1.001, 1.005)) and not asks_again("AMBIGUOUS", 1.1, (0.9, 1.3))

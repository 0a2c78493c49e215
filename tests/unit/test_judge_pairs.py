"""What several pairs of processes say together."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelwright.judge.clocks import NOT_CONFIRMED
from kernelwright.judge.pairs import MAX_PAIRS, PAIR_SPREAD, Pair, combined, doubt_of, pool, words, worth_another
from kernelwright.judge.statistics import ALPHA, estimate, plan_looks, settled
from kernelwright.model.measurement import Measurement
from kernelwright.model.verdict import Comparison

FAST = Pair(math.log(1.25), 0.003)
EVEN = Pair(0.001, 0.003)
PAIRS = st.lists(st.builds(Pair, st.floats(-1, 1), st.floats(1e-4, 0.1)), min_size=2, max_size=MAX_PAIRS)


def comparison(speedup, low, high, ratios=(0.1, 0.2)):
    side = Measurement.of([1e6] * 9, timer="perf_counter")
    return Comparison(reference=side, candidate=side, speedup=speedup, interval=(low, high), smallest_detectable_effect_pct=2.0, pairs=20,
                      blocks=40, method="quads", log_ratios=ratios)


@pytest.mark.parametrize(("pairs", "decision"), [
    ([FAST, FAST], "FASTER"),
    ([Pair(-0.2, 0.01), Pair(-0.22, 0.01)], "SLOWER"),
    ([EVEN, EVEN], "SAME"),
    ([FAST, EVEN], "AMBIGUOUS"),  # they contradict each other: a third one decides, or nothing
    ([FAST, EVEN, FAST], "AMBIGUOUS"),
    ([Pair(math.log(1.5), 0.03), Pair(math.log(1.4), 0.02), Pair(math.log(1.45), 0.03)], "FASTER"),
    ([Pair(0.004, 0.0005), Pair(0.004, 0.0005)], "SAME"),  # however sharp: less than what two processes of one program differ by
    ([Pair(0.0, 0.02), Pair(0.0, 0.02)], "AMBIGUOUS"),
    ([Pair(-0.0026, 0.003), Pair(-0.025, 0.003), Pair(-0.018, 0.003)], "AMBIGUOUS"),
])
def test_what_pairs_decide(pairs, decision):
    assert pool(pairs, "cuda", ALPHA).decision == decision


def test_quads_that_scatter_are_no_independent_draws():
    """Seen on an H200 whose host was busy: a program that only launches, against itself, in two pairs of processes."""
    assert pool([Pair(0.042, 0.0133)] * 2, "cuda", ALPHA).decision == "FASTER"
    assert pool([Pair(0.042, 0.0133, 0.08)] * 2, "cuda", ALPHA).decision == "AMBIGUOUS"
    quiet, plain = (pool([Pair(0.02, 0.001, scatter)] * 2, "cuda", ALPHA) for scatter in (0.006, 0.0))
    assert quiet == plain


def test_figures_of_the_pool():
    """Two pairs alike: the mean, and half the variance of one, within and between."""
    pooled = pool([Pair(0.1, 0.003), Pair(0.1, 0.003)], "cuda", 0.05)
    error = math.sqrt((0.003**2 + PAIR_SPREAD["cuda"] ** 2) / 2)
    assert pooled.speedup == pytest.approx(math.exp(0.1)) and pooled.level == pytest.approx(0.995)
    assert math.log(pooled.high / pooled.low) / 2 == pytest.approx(2.807 * error, rel=1e-3)  # normal quantile at 0.9975
    assert pool([Pair(0.1, 0.003)] * 2, "cuda", 0.01).level == pytest.approx(0.999)


def test_a_cpu_where_processes_differ_by_more_needs_more():
    one = [Pair(-0.018, 0.003)] * 2
    assert pool(one, "cuda", ALPHA).decision == "SLOWER" and pool(one, "cpu", ALPHA).decision != "SLOWER"


def test_pairs_that_are_faster_only_together_are_held_against_the_judges_own_clock():
    """A timer that divides by 1.3, on two busy cores: each pair's interval met 1, so that nobody asked that clock, and both together were
    FASTER, 1.28x [1.13, 1.46]."""
    noisy = [Pair(math.log(1.27), 0.06), Pair(math.log(1.296), 0.06)]
    pooled = pool(noisy, "cpu", ALPHA)
    assert pooled.decision == "FASTER"
    lies, honest = [Pair(math.log(1.01), 0.06), Pair(math.log(1.03), 0.06)], [Pair(math.log(1.25), 0.06)] * 2
    doubt = doubt_of(pooled, ["AMBIGUOUS", "AMBIGUOUS"], lies, "cpu", ALPHA)
    assert doubt is not None and doubt.startswith(NOT_CONFIRMED) and "1.28x together" in doubt and "1.02x [" in doubt
    assert doubt_of(pooled, ["AMBIGUOUS", "FASTER"], lies, "cpu", ALPHA) is not None, "that one alone was confirmed"
    assert doubt_of(pooled, ["AMBIGUOUS", "AMBIGUOUS"], honest, "cpu", ALPHA) is None
    assert doubt_of(pooled, ["FASTER", "FASTER"], lies, "cpu", ALPHA) is None, "each was confirmed by itself"
    same = pool([EVEN, EVEN], "cpu", ALPHA)
    assert doubt_of(same, ["AMBIGUOUS", "SAME"], lies, "cpu", ALPHA) is None


def test_another_pair_is_asked_for_where_it_could_matter():
    assert worth_another([FAST], "cuda", ALPHA) and worth_another([EVEN], "cuda", ALPHA), "never one pair alone"
    assert not worth_another([Pair(0.1, 0.3)], "cuda", ALPHA), "hopelessly noisy"
    assert worth_another([FAST, EVEN], "cuda", ALPHA) and not worth_another([FAST, FAST], "cuda", ALPHA)
    assert not worth_another([FAST, EVEN, FAST], "cuda", ALPHA)


@given(PAIRS, st.sampled_from(["cuda", "cpu"]))
def test_the_order_of_pairs_does_not_matter_and_mirrored_pairs_say_the_mirrored_thing(pairs, device):
    said, back = pool(pairs, device, ALPHA), pool(pairs[::-1], device, ALPHA)
    assert said.speedup == pytest.approx(back.speedup) and said.low == pytest.approx(back.low)
    mirrored = pool([Pair(-pair.log_speedup, pair.standard_error) for pair in pairs], device, ALPHA)
    assert mirrored.high == pytest.approx(1 / said.low) and said.low <= said.speedup <= said.high
    if said.decision == "FASTER":
        assert said.low > 1 and said.speedup > 1
        assert max(pair.log_speedup for pair in pairs) > 0


@given(PAIRS)
def test_the_interval_is_never_sharper_than_the_luck_of_so_many_pairs(pairs):
    said = pool(pairs, "cuda", ALPHA)
    assert math.log(said.high / said.low) / 2 >= 2.8 * PAIR_SPREAD["cuda"] / math.sqrt(len(pairs))


@pytest.mark.parametrize(("device", "luck", "noise", "slower_by"), [("cuda", 0.0045, 0.005, 0.018), ("cpu", 0.006, 0.01, 0.049)])
def test_simulated_judgements_rarely_err_and_mostly_find(device, luck, noise, slower_by):
    """luck: standard deviation between pairs of processes; noise: between quads. As good or worse than measured on quiet machines."""
    rng = np.random.default_rng(2)

    def judged(effect):
        drawn = []
        while not drawn or worth_another(drawn, device, ALPHA):
            values = -effect + rng.normal(0, luck) + rng.normal(0, noise, 40)
            looks = plan_looks(40)
            for look in looks:
                found = estimate(values[:look], len(looks))
                if settled(found):
                    break
            drawn.append(Pair.of(found))
        return pool(drawn, device, ALPHA).decision

    assert sum(judged(0.0) in ("FASTER", "SLOWER") for _ in range(300)) <= 3
    assert sum(judged(slower_by) == "SLOWER" for _ in range(100)) >= 94


def test_what_is_shown_of_pairs():
    found = [comparison(1.2, 1.15, 1.25), comparison(1.3, 1.22, 1.35, (0.3,))]
    pooled = pool([Pair(math.log(1.2), 0.01), Pair(math.log(1.3), 0.01)], "cuda", ALPHA)
    both = combined(pooled, found)
    assert (both.pairs, both.blocks, both.log_ratios, both.quads_of_pairs) == (40, 80, (0.1, 0.2, 0.3), (2, 1))
    assert both.speedup == pooled.speedup and both.interval == (pooled.low, pooled.high) and "2 pairs of processes" in both.method
    told = words(pooled, [("FASTER", found[0]), ("FASTER", found[1])])
    assert "FASTER 1.200x [1.150, 1.250] and FASTER 1.300x [1.220, 1.350]" in told


def test_pairs_that_disagree_are_told_as_not_confirmed():
    pooled = pool([FAST, EVEN, EVEN], "cuda", ALPHA)
    told = words(pooled, [("FASTER", comparison(1.2, 1.15, 1.25)), *[("SAME", comparison(1.0, 0.99, 1.01))] * 2])
    assert pooled.decision == "AMBIGUOUS" and told.startswith("not confirmed by 3 pairs of processes")


def test_pairs_that_agree_by_chance_on_an_overloaded_machine_decide_nothing():
    """Seen with six busy programs on two cores: the same program on both sides."""
    first = [3.25, 2.79, 1.7, 1.4, 0.14, 1.21, 1.06, 0.85, 2.22, 1.56, 2.11, 1.88, -1.33, 3.15, 1.31, -5.71]
    drawn = [Pair.of(estimate(np.asarray(values), 5)) for values in (first, [1.53, 2.2, 3.41])]
    said = pool(drawn, "cpu", ALPHA)
    assert said.low > 1.01 and said.decision == "AMBIGUOUS"
    assert pool([Pair(1.6, 0.15), Pair(1.5, 0.15)], "cpu", ALPHA).decision == "FASTER"


def test_pairs_of_few_wild_quads_decide_nothing():
    """Seen on a busy CPU: 3 quads each, 5.1x [0.05, 501] and 12x [0.8, 181] of an exploit that gained nothing."""
    rng = np.random.default_rng(5)
    drawn = [[Pair.of(estimate(rng.normal(0, 1.5, 3), 1)) for _ in range(2)] for _ in range(400)]
    said = [pool(pairs, "cpu", ALPHA).decision for pairs in drawn if worth_another(pairs[:1], "cpu", ALPHA)]
    assert sum(decision in ("FASTER", "SLOWER") for decision in said) <= 2

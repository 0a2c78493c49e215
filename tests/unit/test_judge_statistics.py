"""The judge's statistics: exact levels, few false alarms under ugly noise, real effects found."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from kernelwright.judge import blocks, statistics, timing
from kernelwright.judge.blocks import plan_of
from kernelwright.judge.outcome import words as words_of
from kernelwright.judge.pairs import Pair
from kernelwright.judge.sm_clocks import nothing_watched
from kernelwright.judge.statistics import (
    MIN_QUADS,
    Estimate,
    decide,
    estimate,
    plan_looks,
    quad_values,
    settled,
    signed_rank_index,
)
from kernelwright.judge.timing import Timed
from kernelwright.model.measurement import Measurement
from kernelwright.model.verdict import Comparison

RUNS = 1000


def comparison(rng, effect, max_quads=40):
    """One whole sequential comparison under AR(1) noise (0.9 from block to block), 5% outliers of about 30%, a drift and random order."""
    looks, blocks = plan_looks(max_quads), 4 * max_quads
    noise = np.empty(blocks)
    noise[0] = rng.normal(0, 0.02) / math.sqrt(1 - 0.81)
    for index in range(1, blocks):
        noise[index] = 0.9 * noise[index - 1] + rng.normal(0, 0.02)
    noise += (rng.random(blocks) < 0.05) * rng.exponential(0.3, blocks) + 0.05 * np.arange(blocks) / blocks
    outer, inner = np.exp(noise).reshape(-1, 4)[:, [0, 3]], np.exp(noise).reshape(-1, 4)[:, [1, 2]]
    swap = rng.random((max_quads, 1)) < 0.5
    reference, candidate = np.where(swap, inner, outer), np.where(swap, outer, inner) / (1 + effect)
    for quads in looks:
        found = estimate(quad_values(reference[:quads].ravel(), candidate[:quads].ravel()), len(looks))
        if settled(found):
            break
    return found, decide(found)


@pytest.mark.parametrize(("speedup", "half_width", "enough"), [
    (1.0, 0.009, True), (1.0, 0.011, False), (1.2, 0.027, True), (1.2, 0.028, False), (7.6, 0.059, True), (7.6, 0.16, False),
    (0.1, 0.059, True), (0.1, 0.16, False),
])
def test_timing_ends_when_the_speed_up_is_known_well_enough_to_rank_by(speedup, half_width, enough):
    known = Estimate(speedup, speedup * np.exp(-half_width), speedup * np.exp(half_width), 0.01, 2.0, 16, 0.99, "signed ranks")
    assert settled(known) == enough


@pytest.mark.parametrize("max_quads", [5, 8, 40])
def test_the_same_program_twice_is_hardly_ever_called_faster_or_slower(max_quads):
    rng = np.random.default_rng(20240501)
    found = [comparison(rng, 0.0, max_quads) for _ in range(RUNS)]
    missed = sum(not interval.low <= 1 <= interval.high for interval, _ in found)
    alarms = sum(decision in ("FASTER", "SLOWER") for _, decision in found)
    assert missed <= 0.05 * RUNS
    assert alarms <= missed


def test_a_tenth_faster_or_slower_is_found():
    rng = np.random.default_rng(7)
    faster = [comparison(rng, 0.10) for _ in range(200)]
    slower = [comparison(rng, -0.10) for _ in range(200)]
    assert sum(decision == "FASTER" for _, decision in faster) >= 190
    assert sum(decision == "SLOWER" for _, decision in slower) >= 190
    assert np.median([interval.speedup for interval, _ in faster]) == pytest.approx(1.10, abs=0.01)


def test_a_linear_drift_cancels_in_a_quad():
    times = np.exp(0.1 * np.arange(8)).reshape(-1, 4)
    assert quad_values(times[:, [0, 3]].ravel(), times[:, [1, 2]].ravel()) == pytest.approx([0, 0], abs=1e-12)


def test_signed_rank_levels_are_those_of_the_tables():
    # Hollander, Wolfe & Chicken, table A.4: n = 8, P(W+ <= 3) = 0.0195, P(W+ <= 4) = 0.0273; n = 10, P(W+ <= 8) = 0.0244.
    assert signed_rank_index(8, 0.05) == 3
    assert signed_rank_index(10, 0.05) == 8
    assert signed_rank_index(5, 0.05) is None
    assert signed_rank_index(8, 0.01) == 0


def test_thousands_of_quads_have_ranks_too_and_the_two_ways_meet(monkeypatch):
    """A long timing of short calls: 2**n passes what a float holds at 1024."""
    exact = signed_rank_index(statistics.EXACT_RANKS, 0.01)
    monkeypatch.setattr(statistics, "EXACT_RANKS", 8)
    signed_rank_index.cache_clear()
    n = 400
    spread = math.sqrt(n * (n + 1) * (2 * n + 1) / 24)
    assert abs(signed_rank_index(n, 0.01) - exact) < 0.01 * spread
    values = np.random.default_rng(0).normal(0.03, 0.1, 2000)
    found = estimate(values, 5)
    signed_rank_index.cache_clear()
    assert found.low < math.exp(0.03) < found.high and found.high - found.low < 0.02


@pytest.mark.parametrize(("low", "high", "expected"), [
    (1.05, 1.10, "FASTER"), (0.90, 0.95, "SLOWER"), (0.985, 1.015, "SAME"), (1.002, 1.015, "SAME"), (1.013, 1.018, "FASTER"),
    (0.981, 0.986, "SLOWER"), (0.95, 1.05, "AMBIGUOUS"),
    (1.005, 1.20, "AMBIGUOUS"), (1.015, 1.03, "FASTER")])
def test_decisions(low, high, expected):
    assert decide(Estimate(math.sqrt(low * high), low, high, 0.005, 1.0, 8, 0.99, "")) == expected


def test_looks_are_few_growing_and_end_at_the_limit():
    for limit in (1, 3, 7, 8, 9, 40, 160, 800):
        looks = plan_looks(limit)
        assert list(looks) == sorted(set(looks)) and looks[-1] == max(limit, MIN_QUADS) and len(looks) <= 5
        assert looks[-1] <= 3.2 * (looks[-2] if len(looks) > 1 else looks[-1])


@pytest.mark.parametrize("made", range(8))
def test_a_stricter_level_starts_where_signed_ranks_can_reach_it(made):
    looks = plan_looks(40, 0.05 / 2**made)
    assert len(looks) <= 5 and signed_rank_index(looks[0], 0.05 / 2**made / 5) is not None
    values = np.random.default_rng(3).normal(0.1, 0.02, looks[0])
    usual, strict = estimate(values, len(looks)), estimate(values, len(looks), 0.05 / 2**made)
    assert "Wilcoxon" in strict.method and strict.low <= usual.low and strict.high >= usual.high


def test_a_longer_timing_has_more_quads_of_the_same_length():
    for call_s in (2e-5, 4e-4, 3e-3, 2e-2):
        usual, longer = plan_of(1, call_s, call_s, 6.0, "cuda"), plan_of(1, call_s, call_s, 30.0, "cuda")
        assert (longer.samples, longer.lead_in) == (usual.samples, usual.lead_in)
        assert 4 * usual.looks[-1] <= longer.looks[-1] <= 200
    assert plan_of(1, 4e-4, 4e-4, 3600.0, "cuda").looks[-1] == 200 and plan_of(1, 4e-4, 4e-4, 6.0, "cuda").looks[-1] == 40


@pytest.mark.parametrize("speedup", [1.0, 6.0, 40.0, 300.0])
def test_on_a_cpu_the_faster_side_has_long_blocks_too_where_there_is_time_for_them(speedup):
    for call_s in (2e-5, 5e-4, 3e-3):
        plan = plan_of(max(1, round(4e-4 / call_s)), speedup * call_s, call_s, 6.0, "cpu")
        quad_s = 2 * plan.ring * (1 + speedup) * call_s * (plan.samples + plan.lead_in)
        assert plan.samples == 1 or 30 * quad_s <= 6.001
        assert plan.samples * plan.ring * call_s >= 2.4e-3 or 30 * quad_s * (plan.samples + 2) / (plan.samples + 1) > 6.0


@pytest.mark.parametrize(("block_s", "noise", "stopped", "pairs"), [
    (0.04, 0.5, "timing used up its 30 s", range(360, 380)),
    (0.001, 0.5, "all 400 pairs that it allows were made", range(400, 401)),
    (0.001, 0.001, "the answer was clear", range(16, 40)),
])
def test_a_slow_warm_up_does_not_end_the_timing_early_and_the_verdict_says_why_it_ended(monkeypatch, block_s, noise, stopped, pairs):
    """Planned from a busy warm-up: calls of 50 ms, which then take less."""
    sides = tuple(SimpleNamespace(worker=SimpleNamespace(pause=lambda: None)) for _ in range(2))
    clock, draws, rng = [0.0], [], np.random.default_rng(7)

    def block(who, plan, first, cut=None):
        clock[0] += block_s
        sample_ns = 1e6 * (1.3 if who is sides[0] else 1.0) * math.exp(rng.normal(0, noise))
        return blocks.Block(block_s, [], [sample_ns] * plan.samples, [1] * plan.samples)

    monkeypatch.setattr(timing, "one_block", block)
    monkeypatch.setattr(timing, "cut_short", lambda plan, sides: None)
    monkeypatch.setattr(timing.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(timing.clocks, "confirm", lambda *args, **_: SimpleNamespace(seen=args[2], doubt=None, cheat=None, counts=False))
    timed = timing._run(sides, plan_of(1, 0.05, 0.05, 30.0, "cuda"), 1, 30.0, 0.05, None, nothing_watched,
                        lambda: draws.append(clock[0]))
    assert len(draws) == math.ceil(timed.comparison.pairs / 2 / timing.SAME_CORES_QUADS), "another core every few quads"
    assert timed.comparison.pairs in pairs and stopped in timed.stopped and stopped in words_of(timed)


def test_too_little_or_broken_data_is_refused():
    with pytest.raises(ValueError):
        estimate(np.zeros(MIN_QUADS - 1), 1)
    with pytest.raises(ValueError):
        estimate(np.array([0.0, math.nan, 0.0, 0.0]), 1)


def test_the_smallest_effect_shrinks_with_the_noise():
    rng = np.random.default_rng(3)
    quiet, loud = (estimate(rng.normal(0, sigma, 20), 5) for sigma in (0.005, 0.05))
    assert 0 < quiet.smallest_effect_pct < 1 < loud.smallest_effect_pct


def test_the_smallest_effect_of_few_quads_uses_students_quantiles():
    values = np.random.default_rng(5).normal(0, 0.02, 4)
    # Student's t with 3 degrees of freedom (tables): t_0.975 = 3.182, t_0.80 = 0.978.
    expected = 100 * math.expm1((3.182 + 0.978) * values.std(ddof=1) / 2)
    assert estimate(values, 1).smallest_effect_pct == pytest.approx(expected, rel=1e-3)


def test_an_effect_below_what_the_noise_lets_see_is_ambiguous() -> None:
    wild = Estimate(speedup=2.921, low=1.053, high=6.622, standard_error=0.3, smallest_effect_pct=246.4, quads=8, level=0.99, method="")
    assert decide(wild) == "AMBIGUOUS"
    clear = Estimate(speedup=1.06, low=1.04, high=1.08, standard_error=0.006, smallest_effect_pct=2.5, quads=8, level=0.99, method="")
    assert decide(clear) == "FASTER"


def _timed(speedup: float, interval: tuple[float, float], smallest: float, decision: str) -> Timed:
    side = Measurement.of([1e6] * 9, timer="perf_counter")
    return Timed(Comparison(reference=side, candidate=side, speedup=speedup, interval=interval, smallest_detectable_effect_pct=smallest,
                            pairs=20, blocks=40, method=""),
                 Estimate(speedup, *interval, standard_error=0.01, smallest_effect_pct=smallest, quads=10, level=0.99, method=""),
                 decision, None)


def test_an_interval_beyond_1_that_is_ambiguous_says_why() -> None:
    words = words_of(_timed(2.85, (1.15, 7.08), 243.0, "AMBIGUOUS"))
    assert "which excludes 1; but the effect of 185.0% is below the smallest one that this much noise would reliably show, 243.0%" in words
    assert "excludes 1" not in words_of(_timed(1.05, (0.9, 1.2), 20.0, "AMBIGUOUS"))
    assert "excludes 1" not in words_of(_timed(2.0, (1.9, 2.1), 5.0, "FASTER"))


@pytest.mark.parametrize("count", [5, 40])
def test_the_scatter_is_that_of_one_quad_and_reaches_the_pairs(count):
    values = np.random.default_rng(3).normal(0.0, 0.04, count)
    found = estimate(values, 1)
    assert found.scatter == pytest.approx(values.std(ddof=1), rel=0.3) and Pair.of(found).scatter == found.scatter

"""The judge's own clock against what a worker reports: liars are found, honest programs with overhead are not accused."""

import numpy as np
import pytest

from kernelwright.judge.clocks import Block, confirm
from kernelwright.judge.statistics import decide, estimate, quad_values

QUADS, SAMPLES = 12, 10


def blocks(rng, true_s, *, overhead_s, lie=1.0, noise=0.01, tail_s=0.0):
    """Two a quad. true_s: seconds of a block's samples; reported divided by lie; overhead varies by a tenth, with a rare long wake-up."""
    made = []
    for _ in range(2 * QUADS):
        times = true_s / SAMPLES * np.exp(rng.normal(0, noise, SAMPLES))
        overhead = overhead_s * rng.uniform(0.95, 1.05) + tail_s * (rng.random() < 0.1)
        made.append(Block(float(times.sum() + overhead), [float(value) * 1e9 / lie for value in times]))
    return made


def judged(reference, candidate, **how):
    found = estimate(quad_values(*([float(np.median(block.times_ns)) for block in side] for side in (reference, candidate))), 1)
    return confirm(reference, candidate, found, decide(found), 1, **how), decide(found)


@pytest.mark.parametrize(("lie", "overhead_s"), [(1.3, 1e-3), (1.5, 1e-3), (1.5, 3e-3), (3.0, 1e-3), (50.0, 5e-3)])
def test_a_timer_that_lies_is_named(lie, overhead_s):
    rng = np.random.default_rng(1)
    result, reported = judged(blocks(rng, 10e-3, overhead_s=overhead_s), blocks(rng, 10e-3, overhead_s=overhead_s, lie=lie))
    assert reported == "FASTER"
    assert result.cheat is not None and "timer disagrees" in result.cheat


def test_a_lie_too_small_to_accuse_gains_nothing():
    rng = np.random.default_rng(2)
    result, reported = judged(blocks(rng, 10e-3, overhead_s=1e-3), blocks(rng, 10e-3, overhead_s=1e-3, lie=1.08))
    assert reported == "FASTER" and result.cheat is None and "not confirmed" in result.doubt


def test_samples_that_hide_their_time_in_one_sample_gain_nothing():
    rng = np.random.default_rng(3)
    candidate = blocks(rng, 10e-3, overhead_s=1e-3)
    for block in candidate:
        honest = sum(block.times_ns)
        block.times_ns = [value / 2 for value in block.times_ns[1:]]
        block.times_ns.append(honest - sum(block.times_ns))
    result, reported = judged(blocks(rng, 10e-3, overhead_s=1e-3), candidate)
    assert reported == "FASTER" and (result.cheat or result.doubt) and not result.counts


def interrupted(rng, sample_s, *, each_s=3e-3):
    """Others take the core for each_s after every each_s of work: all long samples are hit, few short ones, and half the blocks' 2 ms of
    overhead."""
    made = []
    for _ in range(2 * QUADS):
        times = sample_s * np.exp(rng.normal(0, 0.01, SAMPLES)) + each_s * rng.binomial(1, min(1.0, sample_s / each_s), SAMPLES)
        overhead = 2e-3 * rng.uniform(0.95, 1.05) + each_s * rng.binomial(1, 0.5)
        made.append(Block(float(times.sum() + overhead), [float(value) * 1e9 for value in times]))
    return made


def test_where_others_interrupt_the_long_samples_alone_the_judges_own_clock_counts():
    """Two cores and two busy loops: 13.1x by the median samples, 7.2x by the judge's own clock, and without the loops 6.1x."""
    kept = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        sides = interrupted(rng, 3e-3), interrupted(rng, 0.5e-3)
        result, reported = judged(*sides, on_cpu=True)
        assert reported == "FASTER" and result.cheat is None and (result.counts or result.doubt)
        kept.append(result.counts and 4.0 < result.seen.low < result.seen.high < 10.0)
        assert judged(*sides)[0].doubt, "on a GPU nobody shares what is timed"
    assert sum(kept) > 10, "most of the times: these are 24 blocks a side"


@pytest.mark.parametrize("over", [1, 1000])
def test_on_idle_cores_a_false_report_is_not_made_right(over):
    """All samples of a block but one are divided by 100, their sum is kept. over: by how much one block says too much, to hide it."""
    rng = np.random.default_rng(4)
    candidate = blocks(rng, 10e-3 / 1.3, overhead_s=1e-3)
    for block in candidate:
        honest = sum(block.times_ns)
        block.times_ns = [value / 100 for value in block.times_ns[1:]]
        block.times_ns.append(honest - sum(block.times_ns))
    candidate[0].times_ns = [value * over for value in candidate[0].times_ns]
    result, reported = judged(blocks(rng, 10e-3, overhead_s=1e-3), candidate, on_cpu=True)
    assert reported == "FASTER" and (result.cheat or result.doubt) and not result.counts


@pytest.mark.parametrize(("speedup", "overhead_s", "tail_s"), [
    (1.03, 0.5e-3, 0.0), (1.3, 3e-3, 0.0), (2.0, 10e-3, 0.0), (20.0, 10e-3, 0.0), (200.0, 3e-3, 0.0), (1.5, 1e-3, 5e-3), (0.5, 3e-3, 0.0)])
def test_honest_programs_are_confirmed(speedup, overhead_s, tail_s):
    """Many short calls with as much overhead as work, and graph replays that leave almost nothing but overhead, included."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        reference, candidate = (blocks(rng, 10e-3 / factor, overhead_s=overhead_s, tail_s=tail_s) for factor in (1, speedup))
        result, _ = judged(reference, candidate)
        assert result.cheat is None and result.doubt is None and not result.counts, result


def test_an_honest_candidate_whose_refills_cost_a_tenth_more_is_not_accused():
    for seed in range(20):
        rng = np.random.default_rng(seed)
        result, reported = judged(blocks(rng, 10e-3, overhead_s=5e-3), blocks(rng, 9e-3, overhead_s=5.5e-3))
        assert reported == "FASTER" and result.cheat is None and result.doubt is None


def test_a_lie_in_the_noise_is_not_confirmed():
    """Samples that scatter by half let a lie of 1.3 escape the accusation; the judge's own clock must then see a gain of its own, which
    chance alone gives now and then."""
    faster = escaped = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        result, reported = judged(blocks(rng, 10e-3, overhead_s=1e-3, noise=0.6), blocks(rng, 10e-3, overhead_s=1e-3, noise=0.6, lie=1.3))
        faster += reported == "FASTER"
        escaped += reported == "FASTER" and not (result.cheat or result.doubt)
    assert faster > 30 and escaped <= 0.1 * faster


@pytest.mark.parametrize("overhead_s", [1e-3, 5e-3, 10e-3])
def test_a_lie_does_not_hide_in_a_busy_machines_overhead(overhead_s):
    for seed in range(20):
        rng = np.random.default_rng(seed)
        result, reported = judged(blocks(rng, 10e-3, overhead_s=overhead_s), blocks(rng, 10e-3, overhead_s=overhead_s, lie=1.3))
        assert reported == "FASTER" and (result.cheat or result.doubt) and not result.counts

"""The parts around the timed quads: dropped quads, further conditions, the profiler's window, checks of random calls. Stand-in workers."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelwright.judge import blocks, clocks, conditions, timing, undisturbed, window
from kernelwright.judge.channel import WorkerFailed
from kernelwright.judge.replies import ConditionReady, Done, Prepared, Times
from kernelwright.judge.sm_clocks import MAX_DROPPED_SHARE, Reading, SmClocks, kept_quads
from kernelwright.judge.statistics import MIN_QUADS, estimate
from kernelwright.model.verdict import ConditionTiming

CALL_NS = 1e6
MOST = 4
"""Input sets of a ring."""
NO_PROCESS = 2**30
"""Above every process id there is: nothing is bound to a core."""


class StandIn:
    """A worker that answers at once and says that a call takes call_ns; `asked` is what it was told."""

    def __init__(self, role, call_ns=CALL_NS, device="cpu", conditions=("cold L2", "end to end"), dies_at=None, has_own_graph=False):
        self.worker = SimpleNamespace(role=role, pid=NO_PROCESS, pause=lambda: self.asked.append(("pause", {})),
                                      resume=lambda: self.asked.append(("resume", {})))
        self.call_ns, self.device, self.conditions, self.dies_at, self.ring = call_ns, device, conditions, dies_at, 1
        self.asked, self.has_own_graph = [], has_own_graph
        self.noise = np.random.default_rng(len(role))

    def ask(self, op, shape, **fields):
        self.asked.append((op, fields))
        if op == "prepare_timing":
            self.ring = min(fields["calls"], MOST)
            return Prepared(ring=self.ring, pool=3, device=self.device, threads=1, call_s=self.call_ns / 1e9)
        if op == "prepare_condition":
            if fields["condition"] == self.dies_at:
                raise WorkerFailed("died", "was killed", role=self.worker.role)
            applicable = fields["condition"] in self.conditions
            return ConditionReady(applicable=applicable, reason="" if applicable else "CUDA graphs need a GPU", calls=2, sample_s=1e-3,
                                  has_own_graph=self.has_own_graph and fields["condition"] == "graph")
        if op in ("time", "time_condition"):
            calls = [self.ring if op == "time" else 2] * fields["samples"]
            if op == "time":
                calls[-1] = fields["last_calls"]
            return Times(events_ns=[], host_ns=[self.call_ns * count * math.exp(self.noise.normal(0, 1e-3)) for count in calls])
        assert shape is Done
        return Done()


@pytest.fixture
def walls(monkeypatch):
    """The parent's clock goes on by itself a little at each look, so that blocks have a length."""
    now = [0.0]

    def monotonic():
        now[0] += 0.02
        return now[0]

    monkeypatch.setattr(timing.time, "monotonic", monotonic)
    monkeypatch.setattr(timing.clocks, "confirm", lambda *args, **_: SimpleNamespace(seen=args[2], doubt=None, cheat=None, counts=False))


def compared(reference, candidate, **options):
    return timing.compare(reference, candidate, 6.0, **options)


@pytest.mark.parametrize("call_ns", [CALL_NS, CALL_NS / 50, 1e8])
def test_a_sides_samples_follow_each_other_whatever_the_other_side_does(walls, call_ns):
    """So that no two in turn have the same values, where blocks are short or cut, too."""
    sides = StandIn("reference", call_ns), StandIn("candidate", call_ns)
    compared(*sides)
    for side in sides:
        blocks_ = [fields for op, fields in side.asked if op == "time"]
        ends = [fields["first"] + fields["samples"] * side.ring for fields in blocks_]
        assert [fields["first"] for fields in blocks_] == [0, *ends[:-1]] and len(blocks_) > 4
        assert [fields["first"] for op, fields in side.asked if op == "lead_in"] in ([], [fields["first"] for fields in blocks_])


def test_outputs_of_random_timed_calls_are_asked_for_after_their_blocks(walls):
    exported = []
    candidate = StandIn("candidate", CALL_NS / 50)

    def export(pool_index):
        exported.append((pool_index, next(one for one in reversed(candidate.asked) if one[0] == "time")))
        return []

    timed = compared(StandIn("reference", CALL_NS / 50), candidate, export=export)
    assert 9 <= len(timed.checked) == len(exported) <= 13
    for (index, (op, fields)), checked in zip(exported, timed.checked, strict=True):
        last = fields["first"] + (fields["samples"] - 1) * candidate.ring + fields["last_calls"] - 1
        assert op == "time" and index == checked.pool_index == last % 3


def test_where_the_judges_own_clock_counts_the_verdict_has_its_figures_and_a_note(walls, monkeypatch):
    values = np.log(np.linspace(1.19, 1.21, 12))
    seen = estimate(values, 1)
    own = clocks.Confirmation(seen, values, None, None, counts=True)
    monkeypatch.setattr(timing.clocks, "confirm", lambda *args, on_cpu: own if on_cpu else pytest.fail("not on a CPU"))
    timed = compared(StandIn("reference", 2 * CALL_NS), StandIn("candidate"))
    assert (timed.decision, timed.doubt, timed.found) == ("FASTER", None, seen)
    assert (timed.comparison.speedup, timed.comparison.interval) == (seen.speedup, (seen.low, seen.high))
    assert timed.comparison.log_ratios == pytest.approx(values, abs=1e-6) and "own clock" in timed.comparison.method
    assert any("2x" in note and "which counts, 1.2x" in note for note in timed.notes), timed.notes


@pytest.mark.parametrize(("agrees_from", "cheat", "decision"), [(0, None, "FASTER"), (30, None, "FASTER"), (10_000, None, "AMBIGUOUS"),
                                                                (10_000, "timer disagrees", "FASTER")])
def test_while_the_judges_own_clock_is_unsure_of_a_clear_answer_more_is_timed(walls, monkeypatch, agrees_from, cheat, decision):
    """Seen on two cores: 1.44x in 16 pairs within 0.2 s of 6, one of them interrupted: by the own clock 0.94 to 1.76, AMBIGUOUS."""
    asked = []

    def confirm(mine, _theirs, found, *_args, **_options):
        asked.append(len(mine))
        doubt = "not confirmed by the judge's own clock" if len(mine) < agrees_from and cheat is None else None
        return clocks.Confirmation(found, np.zeros(found.quads), cheat, doubt)

    monkeypatch.setattr(timing.clocks, "confirm", confirm)
    timed = compared(StandIn("reference", 2 * CALL_NS), StandIn("candidate"))
    assert (timed.decision, bool(timed.doubt), timed.cheat) == (decision, decision == "AMBIGUOUS", cheat)
    assert (asked[-1] > asked[0]) == (agrees_from > 0 and cheat is None) and (decision == "AMBIGUOUS" or asked[-1] >= agrees_from or cheat)
    assert ("the answer was clear" in timed.stopped) == (decision == "FASTER")


def test_the_checked_blocks_differ_in_length_from_one_judgement_to_the_next_and_both_sides_get_the_same(walls):
    seen = set()
    for _ in range(5):
        sides = StandIn("reference", CALL_NS / 50), StandIn("candidate", CALL_NS / 50)
        compared(*sides, export=lambda index: [])
        asked = [[(fields["samples"], fields["last_calls"]) for op, fields in side.asked if op == "time"] for side in sides]
        assert sorted(asked[0]) == sorted(asked[1][: -timing.CLOSING_CHECKS])
        assert [op for op, _ in sides[0].asked].count("renew") == [op for op, _ in sides[1].asked].count("renew") >= 2
        usual = max(set(asked[1]), key=asked[1].count)
        seen |= {(index, block) for index, block in enumerate(asked[1]) if block != usual}
    assert len(seen) > 6


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_other_side_is_stopped_whenever_one_is_timed(walls, device):
    """What its threads would spin then is this side's time. A command sets a stopped side going again."""
    log = []
    sides = [StandIn(role, device=device) for role in ("reference", "candidate")]
    for side in sides:
        side.asked = SimpleNamespace(append=lambda one, role=side.worker.role: log.append((role, one[0])))
    compared(*sides, export=lambda index: sides[1].ask("renew", Done) and [])
    last = max(index for index, one in enumerate(log) if one == ("reference", "time"))  # what follows serves for checks alone
    running = {"reference", "candidate"}
    for role, op in log[: last + 1]:
        running = running - {role} if op == "pause" else running | {role}
        if op == "time":
            assert running == {role}
    assert {role for role, op in log[last:] if op == "resume"} == {"reference", "candidate"}, "and all goes on at the end"


def test_a_side_goes_on_where_the_timing_fails(walls, monkeypatch):
    sides = [StandIn("reference"), StandIn("candidate")]
    monkeypatch.setattr(timing, "_run", lambda *args, **options: (_ for _ in ()).throw(WorkerFailed("died", "was killed")))
    with pytest.raises(WorkerFailed):
        compared(*sides)
    assert [side.asked[-1][0] for side in sides] == ["resume", "resume"]


def test_a_sample_cut_short_does_not_change_the_time_of_a_call():
    block = blocks.Block(1.0, [], [4e6, 4e6, 1e6], [4, 4, 1])
    assert block.per_call_ns(False) == [1e6, 1e6]
    assert blocks.Block(1.0, [], [2e6], [2]).per_call_ns(False) == [1e6]


def test_quads_during_which_the_gpu_throttled_do_not_count(walls, monkeypatch):
    """The candidate's first two quads look three times as long, and NVML saw a thermal slowdown in them."""
    sides = StandIn("reference"), StandIn("candidate")
    plain, made = timing.one_block, []

    def block(who, plan, first, cut=None):
        found = plain(who, plan, first, cut)
        made.append(found)
        if len(made) <= 8 and who is sides[1]:
            found.host_ns = [3 * value for value in found.host_ns]
        return found

    monkeypatch.setattr(timing, "one_block", block)
    monkeypatch.setattr(timing.SmClocks, "during",
                        lambda self, start, end: Reading(1980, any(one.start_s == start for one in made[:8])))
    for side in sides:
        side.device = "cuda"
    timed = compared(*sides)
    assert timed.decision == "SAME" and timed.comparison.candidate.median_ns == pytest.approx(CALL_NS, rel=0.01)
    assert "2 of" in timed.comparison.method and "dropped for the GPU's clock" in timed.comparison.method


READINGS = st.one_of(st.none(), st.builds(Reading, st.sampled_from([345.0, 1980.0, 1965.0, 1500.0]), st.booleans()))


@given(st.lists(st.tuples(READINGS, READINGS, READINGS, READINGS), min_size=1, max_size=30))
def test_a_disturbed_quad_never_counts_and_a_quiet_one_does(quads):
    sides = ([one for quad in quads for one in quad[:2]], [one for quad in quads for one in quad[2:]])
    kept = kept_quads(*sides)
    assert len(kept.quads) == len(quads)
    for counts, quad in zip(kept.quads, quads, strict=True):
        if any(one is not None and one.disturbed for one in quad):
            assert not counts
        elif len({one.mhz for one in quad if one is not None}) <= 1:
            assert counts
    assert bool(kept.too_many) == (len(quads) - sum(kept.quads) > MAX_DROPPED_SHARE * len(quads))


def test_a_candidate_that_draws_more_power_throughout_keeps_its_quads_and_the_page_says_so():
    kept = kept_quads([Reading(1980, False)] * 20, [Reading(1500, False)] * 20)
    assert all(kept.quads) and "-24% of the reference's SM clock" in kept.note
    mixed = kept_quads([Reading(1980, False)] * 20, [Reading(1980, False)] * 16 + [Reading(1500, False)] * 4)
    assert sum(mixed.quads) == 8 and not mixed.note and not mixed.too_many


def test_without_nvml_nothing_is_dropped_and_that_is_said(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with SmClocks("cuda") as watched:
        assert watched.during(0, 1e9) is None
    assert "SM clocks were not watched" in watched.note
    with SmClocks("cpu") as watched:
        pass
    assert watched.note == ""


def test_each_condition_has_a_row_and_one_that_cannot_be_had_its_reason():
    rows = [*conditions.measure(StandIn("reference", 2 * CALL_NS), StandIn("candidate"), ("cold L2", "end to end", "graph"))]
    assert [row.condition for row in rows] == ["cold L2", "end to end", "graph"]
    for row in rows[:2]:
        assert row.speedup == pytest.approx(2, rel=0.01) and row.interval[0] <= row.speedup <= row.interval[1]
        assert (row.reference_ns, row.candidate_ns) == (pytest.approx(2 * CALL_NS, rel=0.01), pytest.approx(CALL_NS, rel=0.01))
    assert rows[2].speedup is None and rows[2].not_applicable == "reference: CUDA graphs need a GPU"


def test_what_was_not_captured_since_it_has_its_own_graph_is_named():
    every = ("cold L2", "graph")
    for own, words in (((False, True), "candidate"), ((True, True), "reference and candidate"), ((False, False), "")):
        sides = (StandIn(role, call_ns, conditions=every, has_own_graph=one)
                 for role, call_ns, one in zip(("reference", "candidate"), (2 * CALL_NS, CALL_NS), own, strict=True))
        rows = [*conditions.measure(*sides, every)]
        assert [row.note for row in rows] == ["", f"{words}: as it is, with CUDA graphs of its own" if words else ""]
        assert rows[1].speedup == pytest.approx(2, rel=0.01) and not rows[1].not_applicable


def test_a_process_that_a_capture_ends_costs_its_row_and_no_other_condition_may():
    rows = [*conditions.measure(StandIn("reference", conditions=("graph",)), StandIn("candidate", dies_at="graph"), ("graph",))]
    assert rows[0].not_applicable == "candidate: was killed"
    with pytest.raises(WorkerFailed):
        list(conditions.measure(StandIn("reference"), StandIn("candidate", dies_at="cold L2"), ("cold L2",)))


def test_a_call_of_seconds_is_not_timed_again_under_every_condition():
    reference, candidate = StandIn("reference"), StandIn("candidate")
    rows = [*conditions.measure(reference, candidate, ("cold L2", "graph"), pair_s=4.0)]
    assert [row.not_applicable for row in rows] == ["a call takes too long for it (4 s on both sides together)"] * 2
    assert not reference.asked and not candidate.asked


@given(st.floats(1e-6, 100), st.floats(0.01, 10))
def test_a_condition_keeps_to_its_budget_where_the_fewest_quads_allow_it(pair_s, budget_s):
    samples, quads = conditions.plan(pair_s, budget_s)
    assert samples >= 1 and quads >= MIN_QUADS
    assert 2 * pair_s * samples * quads <= budget_s * 1.001 or (samples, quads) == (1, MIN_QUADS)


def test_a_gain_that_cold_caches_take_away_is_named():
    def row(interval):
        return ConditionTiming(condition="cold L2", speedup=0.8, interval=interval)

    assert "slower" in conditions.slower_cold("FASTER", [row((0.7, 0.9))])[0]
    assert conditions.slower_cold("FASTER", [row((0.7, 1.1))]) == [] == conditions.slower_cold("SLOWER", [row((0.7, 0.9))])
    assert conditions.slower_cold("FASTER", []) == []


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), max_size=12), st.integers(0, 30), st.integers(30, 70))
def test_the_busy_time_is_the_length_of_the_union(spans, low, high):
    starts, sizes = (np.array([span[column] for span in spans], dtype=np.int64) for column in (0, 1))
    ends = starts + sizes
    covered = {tick for start, size in spans for tick in range(start, start + size) if low <= tick < high}
    assert window.union_ns(starts, ends, low, high) == len(covered)


def seen(busy_ns):
    return window.Seen(busy_ns, None)


def test_kernels_that_ran_longer_than_the_timer_says_raise_a_doubt():
    assert "kernels ran for 100 us a call, and its timer says 50 us" in window.doubt(seen(95e3), seen(100e3), 100e3, 50e3)
    assert window.doubt(seen(95e3), seen(50e3), 100e3, 55e3) is None
    assert window.doubt(seen(1e3), seen(1e3), 20e3, 10e3) is None, "calls that wait for the host are busy for less"
    assert window.doubt(seen(300e3), seen(150e3), 100e3, 50e3) is None, "a GPU whose clock fell in both windows"


@pytest.mark.parametrize(("beside", "alone", "candidate", "doubted"), [
    (1.0, 1.0, 0.5, False),
    (1.0, 1.0, 0.99, False),
    (2.0, 1.0, 1.0, True),  # all that it gains is what the reference lost
    (1.05, 1.0, 1.0, True),
    (1.05, 1.0, 0.5, False),  # a little lost, much gained
    (1.2, 1.0, 0.5, True),  # too much lost for any figure
    (1.05, 1.0, 1.1, False),  # nothing is claimed
    (1.02, 1.0, 1.0, False),
    (0.8, 1.0, 0.9, False),
])
def test_a_speed_up_that_the_reference_lost_beside_the_candidate_is_not_believed(walls, beside, alone, candidate, doubted):
    sides = StandIn("reference", beside * CALL_NS, "cuda"), StandIn("candidate", candidate * CALL_NS, "cuda")
    timed = compared(*sides)
    sides[0].call_ns = alone * CALL_NS
    alone_ns = undisturbed.time_alone(sides[0], timed)
    assert alone_ns == pytest.approx(alone * CALL_NS, rel=0.01)
    assert (undisturbed.doubt(timed, alone_ns) is not None) == doubted
    row = undisturbed.audit(timed, alone_ns)
    assert row.result == ("failed" if doubted else "passed")
    assert f"{abs(100 * (beside / alone - 1)):.0f}." in row.detail or abs(beside - alone) < 0.03


def test_the_time_alone_is_soon_known_however_long_a_call_is(walls):
    side = StandIn("reference", 5e9, "cuda")
    timed = compared(side, StandIn("candidate", 5e9, "cuda"))
    side.asked.clear()
    undisturbed.time_alone(side, timed)
    assert [op for op, _ in side.asked].count("time") < undisturbed.BLOCKS


def test_a_loss_must_show_in_each_timing_alone(walls, monkeypatch):
    """One of them on a luckier core is no evidence."""
    sides = StandIn("reference", 1.2 * CALL_NS, "cuda"), StandIn("candidate", CALL_NS, "cuda")
    timed = compared(*sides)
    alone = iter([CALL_NS, 1.19 * CALL_NS, CALL_NS])
    monkeypatch.setattr(undisturbed, "_timed_once", lambda *_: next(alone))
    assert undisturbed.doubt(timed, undisturbed.time_alone(sides[0], timed)) is None and len(list(alone)) == 1

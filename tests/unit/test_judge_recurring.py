"""Calls on values that a candidate never had, held against those on values that recur. Stand-in processes."""

from types import SimpleNamespace

import pytest

from kernelwright.judge import recurring
from kernelwright.judge.channel import WorkerFailed
from kernelwright.judge.options import OutOfTime
from kernelwright.judge.recurring import ROUNDS, Seen
from kernelwright.judge.replies import Single

REFERENCE_NS, CANDIDATE_NS = 1e6, 5e5
OUTPUT = ["an output"]


def timed(candidate_ns=CANDIDATE_NS, decision="FASTER", doubt=None, speedup=2.0):
    times = SimpleNamespace(reference=SimpleNamespace(median_ns=REFERENCE_NS), candidate=SimpleNamespace(median_ns=candidate_ns))
    return SimpleNamespace(decision=decision, doubt=doubt, found=SimpleNamespace(speedup=speedup), threads=(1, 1), comparison=times)


class Candidate:
    """Says what calls on new and on recurring inputs take: a figure, or a function of how many calls there were."""

    def __init__(self, events, new_ns, recurring_ns):
        self.worker = SimpleNamespace(pid=2**30)
        self.events, self.asked = events, []
        self.new_ns, self.recurring_ns = new_ns, recurring_ns

    def ask(self, op, shape, **fields):
        assert (op, shape) == ("time_single", Single)
        self.asked.append(fields)
        self.events.append("recurring" if fields["round"] is None else "new")
        value = self.recurring_ns if fields["round"] is None else self.new_ns
        value = value(len(self.asked)) if callable(value) else value
        if isinstance(value, Exception):
            raise value
        return Single(call_ns=value)

    def export(self, what, seed, sampling):
        assert (what, seed) == ("timed", 7)
        self.events.append("export")
        return OUTPUT


def measured(new_ns, recurring_ns=CANDIDATE_NS, candidate_ns=CANDIDATE_NS, share=lambda number: None, repeatable=True, wrong=None):
    events = []
    candidate = Candidate(events, new_ns, recurring_ns)
    reference = SimpleNamespace(worker=SimpleNamespace(pause=lambda: events.append("pause")))
    rounds = SimpleNamespace(
        sharing=SimpleNamespace(share=lambda number: events.append("share") or share(number)),
        forget_quietly=lambda number: events.append("forget"), repeatable=lambda: repeatable, timed_seed=lambda number: 7,
        check_timed=lambda number, got: events.append("check") or (wrong if got is OUTPUT else "of another call"))
    return recurring.measure(timed(candidate_ns), reference, candidate, rounds), candidate, events


def told(seen, candidate_ns=CANDIDATE_NS):
    finding = recurring.found(timed(candidate_ns), seen)
    return finding, recurring.audit(seen, finding)


def test_one_new_round_is_enough_for_a_candidate_that_is_no_slower_on_it():
    seen, candidate, events = measured(1.1 * CANDIDATE_NS)
    assert events == ["share", "pause", "recurring", "new", "export", "recurring", "check", "forget"]
    assert [fields["round"] for fields in candidate.asked] == [None, recurring.FIRST_ROUND, None]
    assert len({fields["index"] for fields in candidate.asked}) == 3 and all(fields["warm"] for fields in candidate.asked)
    finding, row = told(seen)
    assert finding == recurring.Finding() and (row.name, row.result) == ("new values", "passed")
    assert "550 us" in row.detail and "500 us" in row.detail


def test_a_call_that_something_interrupted_is_no_evidence():
    seen, candidate, _ = measured(lambda number: 4e6 if number < 4 else CANDIDATE_NS)
    assert len(seen.new_ns) == 2 and told(seen)[1].result == "passed"
    assert {fields["round"] for fields in candidate.asked} == {None, recurring.FIRST_ROUND, recurring.FIRST_ROUND + 1}
    seen, _, _ = measured(CANDIDATE_NS, lambda number: 4e6 if number != 6 else CANDIDATE_NS)
    assert len(seen.new_ns) == 1, "nor are those beside it"


@pytest.mark.parametrize("slow", [1, 3])
def test_what_knows_few_values_again_is_not_believed_either(slow):
    """One of the two calls beside each new one is as slow as that."""
    seen, _, _ = measured(1e6, lambda number: 1e6 if number % 3 == slow % 3 else 1e5, 1e5)
    finding, row = told(seen, 1e5)
    assert len(seen.new_ns) == ROUNDS and finding.cheat is None and "never had" in finding.doubt and row.result == "warned"


def test_what_forgets_its_values_for_a_new_one_is_found_by_the_first_round():
    seen, _, _ = measured(1e6, lambda number: 1e5 if number == 1 else 1e6, 1e5)
    assert len(seen.new_ns) == ROUNDS and told(seen, 1e5)[0].doubt is not None


@pytest.mark.parametrize(("new", "candidate_ns", "result", "words"), [
    (2.0, CANDIDATE_NS, "failed",
     "stale or cached result: of 8 calls on values that it never had the fastest took 1000 us, on values that recur 500 us"),
    (1.51, CANDIDATE_NS, "failed", "stale or cached result"),
    (1.49, CANDIDATE_NS, "passed", ""),  # less than half of its gain
    (1.49, 6.8e5, "warned", "not believed"),
    (1.14, 9.9e5, "passed", ""),  # noise, whatever it gains
    (1.2, 9e5, "warned", "not believed"),
])
def test_what_is_lost_on_new_values_is_held_against_what_was_gained(new, candidate_ns, result, words):
    seen, _, _ = measured(new * candidate_ns, candidate_ns, candidate_ns)
    finding, row = told(seen, candidate_ns)
    assert row.result == result and words in row.detail and words in (finding.cheat or finding.doubt or "")
    assert (finding.cheat is not None, finding.doubt is not None) == (result == "failed", result == "warned")
    assert len(seen.new_ns) == (ROUNDS if new > recurring.SLOWER else 1)


def test_microseconds_are_no_evidence():
    def seen(new_ns):
        return Seen([new_ns] * ROUNDS, [(1.5e3, 1.5e3)] * ROUNDS)

    assert not seen(4e3).is_slower and not seen(4e3).is_much_slower
    assert seen(9e3).is_slower and seen(9e3).is_much_slower
    assert not Seen().is_slower


def test_a_wrong_output_on_new_values_is_a_cheat_at_once():
    seen, _, events = measured(2 * CANDIDATE_NS, wrong="it is not right")
    finding, row = told(seen)
    assert events.count("share") == 1 and finding.cheat == "it is not right" == row.detail and row.result == "failed"
    _, _, events = measured(CANDIDATE_NS, repeatable=False, wrong="it is not right")
    assert "export" not in events and "check" not in events


@pytest.mark.parametrize(("round_s", "rounds"), [(25, 3), (100, 2)])
def test_a_candidate_that_takes_long_for_each_round_is_not_waited_for_and_not_believed(monkeypatch, round_s, rounds):
    events_at = []
    monkeypatch.setattr(recurring.time, "monotonic", lambda: round_s * events_at.count("share"))
    seen, _, _ = measured(REFERENCE_NS, recurring_ns=1e3, share=lambda number: events_at.append("share"))
    finding, row = told(seen)
    assert events_at.count("share") == rounds and row.result == "warned" and finding.cheat is None
    assert finding.doubt == (f"not believed: of {rounds} calls on values that it never had the fastest took 1000 us, "
                             "on values that recur 1 us")


def test_inputs_of_another_layout_say_nothing():
    seen, _, events = measured(None)
    assert events[-1] == "forget" and "follow the seed" in seen.why_not and told(seen)[1].result == "not_applicable"
    seen, _, _ = measured(CANDIDATE_NS, None)
    assert told(seen)[1].result == "not_applicable"


def test_long_calls_are_made_without_one_before():
    _, candidate, _ = measured(6e8, 6e8, 6e8)
    assert not any(fields["warm"] for fields in candidate.asked)


def fails(code, role):
    def share(number):
        raise WorkerFailed(code, "no memory", role=role)
    return share


def test_inputs_that_cannot_be_had_cost_no_verdict_unless_the_candidate_refuses_them():
    seen, _, events = measured(CANDIDATE_NS, share=fails("raised", "reference"))
    assert events == ["share", "forget"] and "no memory" in told(seen)[1].detail and told(seen)[1].result == "not_applicable"
    seen, _, _ = measured(CANDIDATE_NS, share=fails("raised", "candidate"))
    assert "no memory" in told(seen)[0].doubt and told(seen)[1].result == "warned"


def test_what_a_candidate_raises_on_new_values_is_its_failure():
    for raised in (WorkerFailed("raised", "a candidate's error", role="candidate"), OutOfTime("it was timed")):
        with pytest.raises(type(raised)):
            measured(raised)
    with pytest.raises(WorkerFailed):
        measured(CANDIDATE_NS, share=fails("died", "reference"))


@pytest.mark.parametrize(("of", "asked"), [
    (timed(), True), (timed(decision="AMBIGUOUS", speedup=1.01), True), (timed(decision="AMBIGUOUS", speedup=0.99), False),
    (timed(decision="AMBIGUOUS", doubt="the clock"), False), (timed(decision="SAME"), False), (timed(decision="SLOWER"), False)])
def test_what_may_be_faster_is_asked(of, asked):
    assert recurring.is_asked(of) == asked
    assert "only what may be faster" in recurring.audit(None, recurring.Finding()).detail

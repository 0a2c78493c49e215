"""Calls on values that a candidate never had, held against those on values that recur. Stand-in processes."""

from types import SimpleNamespace

import pytest

from kernelwright.judge import recurring
from kernelwright.judge.channel import WorkerFailed
from kernelwright.judge.recurring import ROUNDS, Seen
from kernelwright.judge.replies import Single

REFERENCE_NS, CANDIDATE_NS = 1e6, 5e5


def timed(candidate_ns=CANDIDATE_NS):
    return SimpleNamespace(threads=(1, 1), comparison=SimpleNamespace(
        reference=SimpleNamespace(median_ns=REFERENCE_NS), candidate=SimpleNamespace(median_ns=candidate_ns)))


class Candidate:
    """Says what calls on new and on recurring inputs take; `asked` is what it was told, `events` all that happened."""

    def __init__(self, events, new_ns, recurring_ns=CANDIDATE_NS):
        self.worker = SimpleNamespace(pid=2**30)
        self.events, self.asked = events, []
        self.new_ns, self.recurring_ns = new_ns, recurring_ns

    def ask(self, op, shape, **fields):
        assert (op, shape) == ("time_single", Single)
        self.asked.append(fields)
        self.events.append("recurring" if fields["round"] is None else "new")
        value = self.recurring_ns if fields["round"] is None else self.new_ns
        if callable(value):
            value = value(len(self.asked))
        if isinstance(value, Exception):
            raise value
        return Single(call_ns=value)


def measured(new_ns, recurring_ns=CANDIDATE_NS, candidate_ns=CANDIDATE_NS, share=lambda number: None):
    events = []
    candidate = Candidate(events, new_ns, recurring_ns)
    reference = SimpleNamespace(worker=SimpleNamespace(pause=lambda: events.append("pause")))
    rounds = SimpleNamespace(sharing=SimpleNamespace(
        share=lambda number: events.append("share") or share(number), forget=lambda number: events.append("forget")))
    return recurring.measure(timed(candidate_ns), reference, candidate, rounds), candidate, events


def test_one_new_round_is_enough_for_a_candidate_that_is_no_slower_on_it():
    seen, candidate, events = measured(1.1 * CANDIDATE_NS)
    assert events == ["share", "pause", "recurring", "new", "recurring", "forget"]
    assert [fields["round"] for fields in candidate.asked] == [None, recurring.FIRST_ROUND, None]
    assert len({fields["index"] for fields in candidate.asked}) == 3 and all(fields["warm"] for fields in candidate.asked)
    finding = recurring.found(timed(), seen)
    row = recurring.audit(timed(), seen, finding)
    assert finding == recurring.Finding() and (row.name, row.result) == ("new values", "passed")
    assert "550 us" in row.detail and "500 us" in row.detail


def test_a_call_that_something_interrupted_is_no_evidence():
    seen, candidate, _ = measured(lambda number: 4e6 if number < 4 else CANDIDATE_NS)
    assert len(seen.new_ns) == 2 and recurring.found(timed(), seen) == recurring.Finding()
    assert {fields["round"] for fields in candidate.asked} == {None, recurring.FIRST_ROUND, recurring.FIRST_ROUND + 1}
    seen, _, _ = measured(1.3 * CANDIDATE_NS, lambda number: 2e6 if number == 3 else CANDIDATE_NS)
    assert len(seen.new_ns) == 1, "nor is one beside another that was interrupted"


@pytest.mark.parametrize(("new", "candidate_ns", "result", "words"), [
    (2.0, CANDIDATE_NS, "failed",
     "stale or cached result: calls on values that it never had took 1000 us, those on values that recur 500 us"),
    (1.51, CANDIDATE_NS, "failed", "stale or cached result"),
    (1.49, CANDIDATE_NS, "passed", ""),  # less than half of its gain
    (1.49, 6.8e5, "warned", "not believed"),
    (1.14, 9.9e5, "passed", ""),  # noise, whatever it gains
    (1.2, 9e5, "warned", "not believed"),
])
def test_what_is_lost_on_new_values_is_held_against_what_was_gained(new, candidate_ns, result, words):
    seen, _, _ = measured(new * candidate_ns, candidate_ns, candidate_ns)
    finding = recurring.found(timed(candidate_ns), seen)
    row = recurring.audit(timed(candidate_ns), seen, finding)
    assert row.result == result and words in row.detail and words in (finding.cheat or finding.doubt or "")
    assert (finding.cheat is not None, finding.doubt is not None) == (result == "failed", result == "warned")
    assert len(seen.new_ns) == (ROUNDS if new > recurring.SLOWER else 1)


def test_microseconds_are_no_evidence():
    assert not Seen([4e3] * 4, [1.5e3] * 4).slower(recurring.MUCH_SLOWER)
    assert Seen([9e3] * 4, [1.5e3] * 4).slower(recurring.MUCH_SLOWER)
    assert not Seen().slower(recurring.SLOWER)


def test_inputs_of_another_layout_say_nothing():
    seen, _, events = measured(None)
    assert events[-1] == "forget" and "follow the seed" in seen.why_not
    assert recurring.audit(timed(), seen, recurring.found(timed(), seen)).result == "not_applicable"


def test_long_calls_are_made_without_one_before():
    _, candidate, _ = measured(6e8, 6e8, 6e8)
    assert not any(fields["warm"] for fields in candidate.asked)


def test_inputs_that_cannot_be_had_cost_no_verdict_and_a_process_that_ends_does():
    def fails(code):
        def share(number):
            raise WorkerFailed(code, "no memory", role="reference")
        return share

    seen, _, events = measured(CANDIDATE_NS, share=fails("raised"))
    assert events == ["share"] and "no memory" in recurring.audit(timed(), seen, recurring.found(timed(), seen)).detail
    with pytest.raises(WorkerFailed):
        measured(CANDIDATE_NS, share=fails("died"))
    seen, _, events = measured(WorkerFailed("raised", "a candidate's error", role="candidate"))
    assert events[-1] == "forget" and "candidate's error" in seen.why_not


def test_only_a_faster_candidate_is_asked():
    assert "only a faster candidate" in recurring.audit(timed(), None, recurring.Finding()).detail

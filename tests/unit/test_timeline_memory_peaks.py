"""Memory peaks of steps against a replay of the same events."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from kernelwright.model.trace import Trace
from kernelwright.timeline.memory import usages
from kernelwright.timeline.memory_peaks import BEFORE, NO_REGION, memory_peaks
from kernelwright.timeline.owners import Owners
from kernelwright.timeline.regions import RangePlaces
from kernelwright.timeline.work import Work
from property_examples import examples
from random_traces import AUTOGRAD, HOME, Made

STEPS = ((0, 100), (150, 250), (250, 300))
ACTIONS = st.lists(st.tuples(st.integers(-40, 320), st.integers(0, 5), st.integers(1, 1000), st.sampled_from((HOME, AUTOGRAD))),
                   min_size=1, max_size=25)
"""(time, address, size, thread): frees what lives at the address, else allocates there."""


def peaks_of(trace: Trace) -> list[object]:
    work = Work(trace)
    return list(memory_peaks(trace, Owners(trace, work), RangePlaces(trace)))


@given(ACTIONS, st.dictionaries(st.integers(0, 5), st.integers(1, 1000), max_size=4))
@examples(50)
def test_each_step_has_its_peak_and_the_highest_its_owners(actions: list[tuple[int, int, int, int]], before: dict[int, int]) -> None:
    made = Made()
    for step in STEPS:
        made.step(*step)
    made.ranges.add("stage:a", 10, 60, thread=HOME)
    made.ranges.add("stage:b", 20, 40, thread=HOME)
    made.ranges.add("stage:c", 200, 260, thread=AUTOGRAD)
    living, total = dict(before), sum(before.values())
    events = []
    for time, address, size, thread in sorted(actions, key=lambda action: action[0]):
        change = -living.pop(address) if address in living else size
        if change > 0:
            living[address] = size
        total += change
        events.append((time, address, change, thread))
        made.memory.append((time, change, total, address, thread))
    trace = made.trace()

    def region(time: int, thread: int) -> str:
        if thread == AUTOGRAD and 200 <= time < 250:
            return "stage:c"
        return "stage:a > stage:b" if 20 <= time < 40 else "stage:a" if 10 <= time < 60 else NO_REGION

    expected = []
    for index, (low, high) in enumerate(STEPS):
        level = sum(before.values()) + sum(change for time, _, change, _ in events if time < low)
        best = (level, low, BEFORE, -1)
        for place, (time, _, change, thread) in enumerate(events):
            if low <= time <= high:
                level += change
                if level > best[0]:
                    best = (level, time, region(time, thread), place)
        if any(STEPS[0][0] <= time <= STEPS[-1][1] for time, *_ in events):
            expected.append((index, *best))
    found = peaks_of(trace)
    assert [(one.step, one.peak_bytes, one.at_ns, one.region) for one in found] == [one[:4] for one in expected]
    highest = [one for one in found if one.is_highest]
    assert len(highest) == (1 if found else 0)
    if not found:
        return
    (use,) = usages(trace)
    (top,) = highest
    assert top.peak_bytes == max(one.peak_bytes for one in found) == use.peak_bytes
    assert sum(share.bytes for share in top.owners) == top.peak_bytes
    owners: Counter[str] = Counter()
    for row in use.alive.tolist():
        owners[region(int(trace.memory.time_ns[row]), int(trace.memory.thread[row]))] += int(trace.memory.change_bytes[row])
    assert {share.region: share.bytes for share in top.owners if share.region != BEFORE} == dict(owners)

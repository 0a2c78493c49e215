"""Which threads of both sides are bound to which cores. The system's calls as stand-ins."""

import os

import pytest

from kernelwright.judge.placement import same_cores

CORES = set(range(16))


@pytest.fixture
def bound(monkeypatch):
    """What was bound, in order: (thread, cores)."""
    found = []
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(CORES), raising=False)
    monkeypatch.setattr(os, "sched_setaffinity", lambda pid, cores: found.append((pid, frozenset(cores))), raising=False)
    monkeypatch.setattr(os, "listdir", lambda folder: [folder.split("/")[2], folder.split("/")[2] + "1"])
    return found


def test_on_a_gpu_both_main_threads_share_one_core_that_each_draw_changes(bound):
    with same_cores([7, 8], [0, 0]) as draw:
        for _ in range(40):
            draw()
    pairs, undone = bound[:-4], bound[-4:]
    assert all(one[0] == 7 and other[0] == 8 and one[1] == other[1] and len(one[1]) == 1
               for one, other in zip(pairs[::2], pairs[1::2], strict=True))
    assert len({cores for _, cores in pairs}) > 5
    assert undone == [(thread, frozenset(CORES)) for thread in (7, 71, 8, 81)], "threads that were born meanwhile too"


def test_on_a_cpu_all_threads_stay_on_one_choice_of_as_many_cores(bound):
    with same_cores([7, 8], [3, 3]) as draw:
        draw()
    chosen, undone = bound[:4], bound[4:]
    assert [thread for thread, _ in chosen] == [7, 71, 8, 81] and len({cores for _, cores in chosen}) == 1 and len(chosen[0][1]) == 3
    assert undone == [(thread, frozenset(CORES)) for thread in (7, 71, 8, 81)]


@pytest.mark.parametrize("threads", [[1, 2], [16, 16], [17, 17]])
def test_nothing_is_bound_where_sides_differ_or_use_all_cores(bound, threads):
    with same_cores([7, 8], threads) as draw:
        draw()
    assert bound == []


def test_what_can_not_be_bound_goes_on(monkeypatch):
    def refused(_pid, _cores):
        raise PermissionError

    monkeypatch.setattr(os, "sched_setaffinity", refused, raising=False)
    with same_cores([os.getpid()], [0]) as draw:
        draw()

"""The worker's timer and its conditions, in this process: which inputs each call gets, where they lie, and what memory holds meanwhile."""

import ctypes
import itertools
import runpy
import sys
from types import SimpleNamespace

import pytest
import torch

from judge_exploits import FOLDER
from kernelwright.judge.channel import STEADY_MEMORY
from kernelwright.probe import judge_program
from kernelwright.probe.judge_conditions import COLD, GRAPH, WHOLE, Condition, NotHere
from kernelwright.probe.judge_program import POISON, Timer
from kernelwright.probe.judge_worker import Worker

POOL = [((torch.full((64,), float(index)),), {}) for index in range(3)]


class Program:
    """Calls `fn`; stands in for judge_program.Program on the CPU."""

    def __init__(self, fn):
        self.fn = fn
        self.workload = SimpleNamespace(device="cpu", training=False, caller=self._caller,
                                        step=lambda fn, args, kwargs: fn(*args, **kwargs))

    def _caller(self, fn, args, kwargs):
        return lambda: fn(*args, **kwargs)

    def synchronize(self):
        pass

    def leaves(self, output, buffers=True):
        return [("", output)]


def allocated_bytes():
    """By malloc in this process, in its heap and beside it: mallinfo2(3), and before glibc 2.33 mallinfo(3)."""
    library = ctypes.CDLL(None)
    mallinfo, kind = (library.mallinfo2, ctypes.c_size_t) if hasattr(library, "mallinfo2") else (library.mallinfo, ctypes.c_int)
    names = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")
    mallinfo.restype = type("mallinfo", (ctypes.Structure,), {"_fields_": [(name, kind) for name in names]})
    found = mallinfo()
    return found.uordblks + found.hblkhd


def logging(calls):
    def fn(x):
        calls.append((float(x[0]), x.data_ptr()))
        return x + 1

    return Program(fn)


def test_a_block_ends_after_the_calls_that_it_was_told_and_each_call_has_its_pool_entry():
    calls = []
    timer = Timer(logging(calls), POOL, 4)
    events, hosts = timer.block(3, 5, 2)
    assert events == [] and len(hosts) == 3 and all(value > 0 for value in hosts)
    assert [value for value, _ in calls] == [(5 + number) % 3 for number in range(4 + 4 + 2)]
    assert float(timer.last_output[0]) == (5 + 9) % 3 + 1


def test_renewed_inputs_lie_elsewhere_and_hold_what_they_should():
    calls = []
    timer = Timer(logging(calls), POOL, 4)
    timer.block(1, 0, 4)
    timer.renew()
    timer.block(1, 4, 4)
    before, after = calls[:4], calls[4:]
    assert not {place for _, place in before} & {place for _, place in after}
    assert [value for value, _ in after] == [(4 + number) % 3 for number in range(4)]


def test_on_a_cpu_each_block_finds_other_memory():
    """Else where buffers lie against each other is a process's luck for life."""
    calls = []
    timer = Timer(logging(calls), POOL, 4)
    for block in range(3):
        timer.block(1, 4 * block, 4)
    first, second, third = ({place for _, place in calls[4 * block: 4 * block + 4]} for block in range(3))
    assert not first & second and not second & third
    assert [value for value, _ in calls] == [number % 3 for number in range(12)]
    before = [filling.numel() for filling in timer._fillings]
    timer.block(1, 0, 4)
    assert [filling.numel() for filling in timer._fillings] != before


def test_a_lead_in_runs_at_the_places_of_the_block_that_follows():
    """Else the first timed call at new places meets cold memory."""
    calls = []
    timer = Timer(logging(calls), POOL, 4)
    for _ in range(2):
        timer.lead_in()
        timer.block(1, 0, 4)
    timer.block(1, 0, 4)
    led, timed, led_again, timed_again, timed_alone = ({place for _, place in calls[4 * part: 4 * part + 4]} for part in range(5))
    assert led == timed and led_again == timed_again and not timed & timed_again and not timed_again & timed_alone


@pytest.mark.parametrize("rounds", [2, 3])
@pytest.mark.parametrize("asked", range(1, 17))
def test_no_place_has_the_values_of_the_pass_before_when_it_is_timed(rounds, asked):
    """Else a result remembered by address would be right, and free: also in the first sample after a lead-in."""
    worker, calls = Worker("candidate"), []
    worker.program = logging(calls)
    worker.workload = worker.program.workload
    worker.rounds = {number: POOL[number] for number in range(rounds)}
    ring = worker.op_prepare_timing({"calls": asked, "seconds": 0.0, "min_calls": 1})["ring"]
    assert ring == worker.timer.ring_size and asked - 1 <= ring <= asked
    calls.clear()
    first = 0
    for samples in (3, 1, 2):
        worker.op_lead_in({"first": first})
        worker.op_time({"samples": samples, "first": first, "last_calls": ring})
        first += samples * ring
    passes = [[value for value, _ in calls[start: start + ring]] for start in range(0, len(calls), ring)]
    assert len(passes) == 4 + 2 + 3
    for timed in set(range(len(passes))) - {0, 4, 6}:
        assert all(before != now for before, now in zip(passes[timed - 1], passes[timed], strict=True))


def test_a_ring_of_one_rounds_inputs_has_its_length():
    worker = Worker("candidate")
    worker.program = logging([])
    worker.workload, worker.rounds = worker.program.workload, {0: POOL[0]}
    assert worker.op_prepare_timing({"calls": 4, "seconds": 0.0, "min_calls": 1})["ring"] == 4


def test_a_single_call_is_made_on_the_values_it_should_have_and_after_some_on_others():
    calls = []
    timer = Timer(logging(calls), POOL, 2)
    new = ((torch.full((64,), 9.0),), {})
    assert timer.single(new, POOL) > 0 and [value for value, _ in calls] == [0.0, 1.0, 2.0, 9.0]
    assert len({place for _, place in calls}) == 1 and float(timer.last_output[0]) == 10.0
    assert timer.single(new, []) > 0 and [value for value, _ in calls[4:]] == [9.0]
    assert timer.single(((torch.zeros(65),), {}), []) is None and len(calls) == 5
    timer.ring[0][0][0].data = torch.zeros(65)
    assert timer.single(new, []) > 0 and calls[5][0] == 9.0, "a candidate that changes an input's shape is asked all the same"
    worker = Worker("candidate")
    worker.timer, worker.rounds = timer, {7: new}
    assert worker.op_time_single({"round": 7, "index": 2, "warm": False})["call_ns"] > 0
    assert worker.op_time_single({"round": None, "index": 4, "warm": True})["call_ns"] > 0
    assert [value for value, _ in calls[6:]] == [9.0, 0.0, 1.0, 2.0, 1.0]


def test_each_block_finds_the_memory_that_mkl_keeps_elsewhere(monkeypatch):
    """Of 4.6 MB a thread, taken at the first product. Where it lies made one of 256 x 192 x 192 slower by a fifth, for a process's life."""
    square = torch.rand(1024, 1024)
    square @ square
    before = allocated_bytes()
    judge_program.find_frees_kept()()
    assert (before - allocated_bytes() > 2**20) == torch.backends.mkl.is_available()
    order = []
    monkeypatch.setattr(judge_program, "_free_kept", lambda: order.append("freed"))
    monkeypatch.setattr("torch.empty", lambda size, **how: order.append("filled") or torch.zeros(size, **how))
    Timer(logging([]), POOL, 2).lead_in()
    fillings = judge_program.FILLINGS + 1
    parts = ["filled"] * judge_program.PARTS
    assert order[:len(parts) + 1 + fillings] == [*parts, "freed", *["filled"] * fillings] and order.count("freed") == 1
    order.clear()
    Timer(logging([]), POOL, 2, is_alone=False).lead_in()
    assert "freed" not in order


def test_no_memory_is_freed_of_a_library_that_torch_does_not_have(monkeypatch):
    monkeypatch.setattr(judge_program, "FREES_KEPT", ("mkl_of_another_name",))
    assert judge_program.find_frees_kept() is judge_program._nothing
    monkeypatch.undo()
    monkeypatch.setattr(torch, "__file__", "/nowhere/torch/__init__.py")
    assert judge_program.find_frees_kept() is judge_program._nothing


def test_memory_for_later_places_is_written_before_anything_is_timed(monkeypatch):
    written = []
    plain = torch.Tensor.fill_
    monkeypatch.setattr(torch.Tensor, "fill_", lambda self, value: written.append(self.numel()) or plain(self, value))
    Timer(logging([]), POOL, 2, is_alone=False)
    assert written == []
    Timer(logging([]), POOL, 2)
    assert sum(written) == judge_program.TOUCHED_BYTES >= judge_program.LARGE_FILLING + 8 * 2**20
    assert max(written) + 4096 < int(STEADY_MEMORY["MALLOC_MMAP_THRESHOLD_"]), "malloc keeps them, side by side"


def test_what_the_last_outputs_occupied_is_poisoned_before_the_next_sample(monkeypatch):
    filled = []
    plain = torch.Tensor.fill_

    def fill(self, value):
        filled.append((self.numel() * self.element_size(), self.dtype, value))
        return plain(self, value)

    timer = Timer(logging([]), POOL, 2)
    monkeypatch.setattr(torch.Tensor, "fill_", fill)
    timer.block(1, 0, 2)
    assert filled == []
    timer.block(1, 2, 2)
    assert filled == [(256, torch.uint8, POISON)] * 2
    assert bool(torch.full((4,), POISON, dtype=torch.uint8).view(torch.float32).isnan().all())


def test_outputs_that_would_take_long_to_poison_are_left_alone(monkeypatch):
    monkeypatch.setattr("kernelwright.probe.judge_program.MAX_POISON_BYTES", {"cpu": 255, "cuda": 255})
    timer = Timer(logging([]), POOL, 2)
    timer.block(2, 0, 2)
    assert timer._output_bytes == []


@pytest.mark.parametrize("name", [COLD, WHOLE])
def test_a_condition_times_every_call_on_the_values_it_should_have(name, monkeypatch):
    monkeypatch.setattr("kernelwright.probe.judge_conditions.l2_bytes", lambda device: 1 << 16)
    calls = []
    condition = Condition(name, Timer(logging(calls), POOL, 8))
    events, hosts = condition.block(3, 1)
    assert events == [] and len(hosts) == 3 and condition.calls == {COLD: 4, WHOLE: 1}[name]
    assert [value for value, _ in calls] == [(1 + number) % 3 for number in range(3 * condition.calls)]


def test_end_to_end_gives_every_call_new_tensors():
    calls = []
    timer = Timer(logging(calls), POOL, 2)
    Condition(WHOLE, timer).block(3, 0)
    own = {tensor.data_ptr() for args, _ in [*POOL, *timer.ring] for tensor in args}
    assert not own & {place for _, place in calls}


class Clock:
    """Stands in for a CUDA event."""

    def __init__(self, enable_timing):
        pass

    def record(self):
        pass


@pytest.mark.parametrize("has_own", [True, False])
def test_calls_that_replay_a_graph_of_their_own_are_timed_as_they_are(has_own, monkeypatch):
    """The stand-in for a GPU knows no capture."""
    replayed = []
    monkeypatch.setattr(torch.cuda.CUDAGraph, "replay", lambda graph: replayed.append(graph), raising=False)
    monkeypatch.setattr("kernelwright.probe.judge_program._Event", Clock)
    monkeypatch.setattr("kernelwright.probe.judge_program._elapsed_time", lambda start, end: 0.5)
    monkeypatch.setattr("kernelwright.probe.judge_program._synchronize", lambda: None)
    monkeypatch.setattr(Timer, "_poison", lambda timer: None)
    own = torch.cuda.CUDAGraph.replay
    calls = []

    def fn(x):
        if has_own:
            torch.cuda.CUDAGraph.replay("its graph")
        calls.append(float(x[0]))
        return x + 1

    timer = Timer(Program(fn), POOL, 2)
    timer.program.workload.device = "cuda"
    if not has_own:
        with pytest.raises(NotHere, match="cannot be captured"):
            Condition(GRAPH, timer)
    else:
        condition = Condition(GRAPH, timer)
        assert condition.has_own_graph and replayed == ["its graph"], "it is replayed while it is looked for"
        calls.clear()
        assert condition.block(2, 1)[0] == [0.5e6, 0.5e6] and calls == [1.0, 2.0, 0.0, 1.0] and condition.calls == 2
    assert torch.cuda.CUDAGraph.replay is own, "torch's own again"


def test_a_graph_needs_a_gpu_and_an_unknown_condition_is_refused():
    timer = Timer(logging([]), POOL, 2)
    with pytest.raises(NotHere, match="need a GPU"):
        Condition(GRAPH, timer)
    with pytest.raises(NotHere, match="no condition is called lukewarm"):
        Condition("lukewarm", timer)


@pytest.mark.parametrize(("exploit", "factor"), [("timer_by_a_third", 1.3), ("timer_by_half", 1.5), ("lying_timer", 50)])
def test_exploits_of_the_timer_do_lie(exploit, factor, monkeypatch):
    """Else their verdicts would show nothing: each gives back the model's own work."""
    monkeypatch.setitem(sys.modules, "kernelwright_probe.judge_program", judge_program)
    monkeypatch.setattr(Timer, "_sample", Timer._sample)
    monkeypatch.setattr(judge_program, "_perf_counter_ns", itertools.count(0, 1000).__next__)
    monkeypatch.setattr("time.monotonic_ns", itertools.count(0, 1000).__next__)
    timer = Timer(logging([]), POOL, 2)
    assert timer.block(2, 0, 2)[1] == [1000, 1000]
    runpy.run_path(str(FOLDER / f"{exploit}.py"))["optimize"](lambda x: x, ())
    assert timer.block(2, 0, 2)[1] == [pytest.approx(1000 / factor)] * 2

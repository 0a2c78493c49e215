"""What a judge's or screen's process does when it loads a workload, in this process."""

import sys
from types import ModuleType, SimpleNamespace

import numpy
import pytest
import torch

from judge_corpus import DATA
from judge_in_process import workload_of
from kernelwright.probe import judge_candidate, judge_program, screen
from kernelwright.probe.judge_worker import Worker


@pytest.mark.parametrize("process", [lambda: Worker("reference"), lambda: Worker("candidate"), screen.Screen],
                         ids=["reference", "candidate", "screen"])
def test_mkl_s_vector_functions_are_ready_before_the_workload_is_called(process, monkeypatch):
    called = []
    monkeypatch.setattr(judge_program, "VECTOR_FUNCTIONS", (lambda x: called.append(x.dtype),))
    monkeypatch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "1")  # which a screen sets
    threads = torch.get_num_threads()
    try:
        process().op_load({"path": str(DATA / "wide.py"), "version": None, "params": {}, "device": "cpu", "seed": 1})
    finally:
        torch.set_num_threads(threads)
    assert called == [torch.float32, torch.float64]


def test_on_a_gpu_they_are_left_alone(monkeypatch):
    called = []
    monkeypatch.setattr(judge_program, "VECTOR_FUNCTIONS", (called.append,))
    judge_program.ready_vector_functions("cuda")
    assert called == []


def test_a_generator_of_another_kind_in_the_place_of_numpy_s_global_one_is_seeded_and_watched():
    workload = workload_of(torch.nn.Tanh().eval(), lambda: [torch.randn(4)])
    mine, theirs = numpy.random.get_bit_generator(), numpy.random.PCG64(1)
    numpy.random.set_bit_generator(theirs)
    try:
        _, quiet = judge_program.Program(workload, torch.tanh).call(workload.fresh_inputs(1), 1)
        draws = judge_program.Program(workload, lambda x: x * numpy.random.rand())
        (((_, one),), drew), (((_, two),), _) = (draws.call(workload.fresh_inputs(1), 1) for _ in range(2))
        assert torch.equal(one, two)
        assert numpy.random.get_bit_generator() is theirs
    finally:
        numpy.random.set_bit_generator(mine)
    assert (quiet.outside, drew.outside) == (False, True) and not quiet.torch and not drew.torch


class Kernel:
    """What counts of triton.JITFunction: it keeps what it compiled under its source and this line, once told under this hash."""

    def __init__(self, line, told=None):
        self.starting_line_number, self.hash = line, told


def test_kernels_of_a_candidate_are_found_compiled_whatever_lines_of_its_file_they_begin_on(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "triton.runtime.jit", SimpleNamespace(JITFunction=Kernel))
    candidate = ModuleType("candidate")
    candidate.product, candidate.launched, candidate.other = Kernel(40), Kernel(80, "a hash"), SimpleNamespace(starting_line_number=7)
    judge_candidate.share_kernels(candidate)
    assert [one.starting_line_number for one in (candidate.product, candidate.launched, candidate.other)] == [1, 80, 7]
    file = tmp_path / "candidate.py"
    file.write_text(f"from {__name__} import Kernel\n\nproduct = Kernel(3)\n\n\ndef optimize(model, inputs):\n"
                    "    return lambda x: product\n")
    workload = workload_of(torch.nn.Tanh().eval(), lambda: [torch.randn(4)])
    assert judge_candidate.build(str(file), workload, 0).call(None).starting_line_number == 1
    monkeypatch.delitem(sys.modules, "triton.runtime.jit")
    judge_candidate.share_kernels(candidate)
    assert candidate.other.starting_line_number == 7, "without Triton there is nothing to do"


def test_the_state_of_a_model_of_its_own_is_not_compared():
    """A KernelBench ModelNew that takes a batch's own statistics keeps no running ones."""
    workload = workload_of(torch.nn.BatchNorm1d(3), lambda: [torch.randn(4, 3)])
    workload.changed_buffers = ("running_mean",)
    other = torch.nn.BatchNorm1d(3)
    assert judge_program.Program(workload, other, is_new=True).state() == []
    [(path, value)] = judge_program.Program(workload, other).state()
    other.running_mean += 1
    assert path == "buffer running_mean" and not value.any(), "its own of that name, and what it was then"

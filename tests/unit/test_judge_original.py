"""When a candidate's calls count as the original's own: its forward, unchanged, on arguments and weights that lie alike."""

import copy
import functools
from types import SimpleNamespace

import pytest
import torch

from judge_in_process import workload_of
from kernelwright.judge.channel import WorkerFailed
from kernelwright.judge.kernels import runs_the_original
from kernelwright.judge.outcome import not_faster
from kernelwright.judge.replies import Original
from kernelwright.probe import judge_original
from kernelwright.probe.judge_program import Program, Timer


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Conv2d(3, 4, 3)

    def forward(self, x):
        return self.layer(x).relu()


def get_inputs():
    return [torch.randn(2, 3, 8, 8)]


def told(make=None, model=None):
    """What a process says of a candidate that `make` makes of the workload's model; of the original itself without one."""
    workload = workload_of(model or Net().eval(), get_inputs)
    call = workload.model if make is None else make(workload.model)
    inputs = [(workload.args, workload.kwargs)] * 2
    with torch.no_grad():
        return judge_original.told(Timer(Program(workload, call), inputs, 2))


def falls_back(model):
    def call(x):
        try:
            raise NotImplementedError
        except NotImplementedError:
            return model(x)

    return call


def other_layout(model):
    return model.to(memory_format=torch.channels_last)


def without_gradients(model):
    return falls_back(model.requires_grad_(False))


def other_forward(model):
    model.layer.forward = functools.partial(torch.nn.functional.conv2d, weight=model.layer.weight, bias=model.layer.bias)
    return model


def inference(model):
    return torch.inference_mode()(falls_back(model))


def own_code(model):
    return lambda x: model.layer(x).relu()


def half_the_calls(model):
    calls = []

    def call(x):
        calls.append(x)
        return model(x) if len(calls) % 2 else x

    return call


def other_arguments(model):
    return lambda x: model(x.contiguous(memory_format=torch.channels_last))


def twice(model):
    return lambda x: (model(x), model(x))[0]


@pytest.mark.parametrize("make", [lambda model: model, falls_back, copy.deepcopy], ids=["the_model", "falls_back", "a_copy"])
def test_the_original_under_another_name_is_known(make):
    original = told()
    assert original["forwards"] == 2 and told(make) == original


@pytest.mark.parametrize("make", [
    other_layout, without_gradients, other_forward, inference, own_code, half_the_calls, other_arguments, twice])
def test_what_may_honestly_be_faster_is_not_the_original(make):
    assert told(make) != told()


def test_fewer_threads_and_flushed_denormals_are_not_the_original():
    original, threads = told(), torch.get_num_threads()
    try:
        torch.set_num_threads(threads + 1)
        assert told(falls_back) != original
        torch.set_num_threads(threads)
        if torch.set_flush_denormal(True):
            assert told(falls_back) != original
    finally:
        torch.set_num_threads(threads)
        torch.set_flush_denormal(False)
    assert told(falls_back) == original


def test_functions_and_decorated_forwards_have_code_and_builtins_none():
    def plain(x):
        return x.relu()

    assert told(falls_back, plain)["forwards"] == 2
    assert judge_original.own_code(torch.no_grad()(plain)) is plain.__code__
    assert judge_original.own_code(torch.relu) is None and told(model=torch.relu)["forwards"] == 0


def side(answer):
    def ask(_op, _shape):
        if isinstance(answer, Exception):
            raise answer
        return Original(**answer)

    return SimpleNamespace(ask=ask)


def test_nothing_is_established_where_no_forward_was_seen_or_a_side_does_not_answer():
    one, none = {"forwards": 2, "digest": "a"}, {"forwards": 0, "digest": "a"}
    assert runs_the_original(side(one), side(one))
    assert not runs_the_original(side(none), side(none))
    assert not runs_the_original(side(one), side({"forwards": 2, "digest": "b"}))
    assert not runs_the_original(side(one), side(WorkerFailed("error", "failed", role="candidate")))


def test_faster_is_taken_back_with_its_reason():
    timed = SimpleNamespace(decision="FASTER", doubt=None)
    name, reasons = not_faster(timed, ("speed-up 1.077x",))
    assert (name, timed.decision, reasons) == ("AMBIGUOUS", "AMBIGUOUS", (timed.doubt, "speed-up 1.077x"))
    assert "the original's own code" in timed.doubt and "noise" in timed.doubt

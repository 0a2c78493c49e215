"""A workload that brings torch.compile: recognised wherever it can be seen from outside, and taken off there."""

from __future__ import annotations

import copy
import functools
import types
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters

from kernelwright.probe.facts import is_compiled
from kernelwright.probe.judge_reference import copied
from kernelwright.probe.rewrites.unwrap_compiled import is_graphed, uncompiled, unwrap_compiled

GRAPHS = [0]


def counting(graph: torch.fx.GraphModule, _example_inputs: object) -> Callable[..., object]:
    """A backend that compiles nothing; GRAPHS tells that it was asked."""
    GRAPHS[0] += 1
    return graph.forward


@pytest.fixture(autouse=True)
def nothing_compiled():
    torch._dynamo.reset()
    counters.clear()
    GRAPHS[0] = 0


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x).relu()


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.block = torch.nn.Linear(4, 4), Block()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return self.helper(x)

    def helper(self, x: torch.Tensor) -> torch.Tensor:
        return self.block(self.first(x))


class Decorated(Model):
    @torch.compile(backend=counting)
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 2 * self.helper(x)


def around(model: Model) -> object:
    return torch.compile(model, backend=counting)


def in_place(model: Model) -> Model:
    model.compile(backend=counting)
    return model


def part(model: Model) -> Model:
    model.block.layer = torch.compile(model.block.layer, backend=counting)
    return model


def part_in_place(model: Model) -> Model:
    model.block.compile(backend=counting)
    return model


def part_and_whole(model: Model) -> object:
    return around(part_in_place(model))


def forward_method(model: Model) -> Model:
    model.forward = torch.compile(model.forward, backend=counting)
    return model


def other_method(model: Model) -> Model:
    model.helper = torch.compile(model.helper, backend=counting)
    return model


def patched_forward(model: Model) -> Model:
    """A forward put into the object is bound to it, and would call its compiled part."""
    model.forward = types.MethodType(lambda self, x: self.block(x), model)
    return part_in_place(model)


def decorated(_model: Model) -> Model:
    return Decorated()


def graphed(module: nn.Module) -> nn.Module:
    """As torch.cuda.make_graphed_callables leaves a module: its own code for a new forward, with a stand-in for the replay."""
    made = next(code for code in torch.cuda.make_graphed_callables.__code__.co_consts
                if isinstance(code, types.CodeType) and code.co_name == "make_graphed_forward")
    own = module.forward

    def replay(*args: torch.Tensor) -> torch.Tensor:
        GRAPHS[0] += 1
        return own(*args)

    module.forward = types.FunctionType(made, vars(torch.cuda.graphs))(module, module.training, replay, own)
    return module


def whole_graphed(model: Model) -> Model:
    return graphed(model)


def part_graphed(model: Model) -> Model:
    graphed(model.block)
    return model


def two_graphed(model: Model) -> Model:
    graphed(model.first)
    graphed(model.block)
    return model


def graphed_in_compiled(model: Model) -> object:
    return around(part_graphed(model))


COMPILED = [around, in_place, part, part_in_place, part_and_whole, forward_method, other_method, patched_forward, decorated]
GRAPHED = [whole_graphed, part_graphed, two_graphed]
WAYS = [*COMPILED, *GRAPHED, graphed_in_compiled]


@pytest.mark.parametrize("way", WAYS)
def test_torch_compile_is_taken_off_wherever_it_is_and_the_model_stays_as_it_was(way):
    model = way(Model())
    before = {name: (dict(vars(module)), dict(module._modules)) for name, module in model.named_modules()}
    x = torch.randn(3, 4)
    plain = unwrap_compiled(model, (x,), {})
    assert (is_compiled(model), is_graphed(model)) == (way not in GRAPHED, way not in COMPILED)
    assert not is_compiled(plain) and not is_graphed(plain) and uncompiled(plain) is None
    out = plain(x)
    assert GRAPHS[0] == 0, "nothing is compiled in a call of what is left"
    assert isinstance(plain, Model) and {id(one) for one in plain.parameters()} == {id(one) for one in model.parameters()}
    assert [name for name, _ in plain.named_parameters()] == [name for name, _ in Model().named_parameters()]
    assert {name: (dict(vars(module)), dict(module._modules)) for name, module in model.named_modules()} == before
    assert torch.equal(out, model(x)) and GRAPHS[0] > 0, "the model itself is compiled as ever"
    assert torch.equal(copy.deepcopy(plain)(x), out), "passes work on copies"


def test_weights_and_buffers_of_the_twin_are_the_models_own():
    model = in_place(Model())
    twin = uncompiled(model)
    x = torch.randn(3, 4)
    before = twin(x)
    with torch.no_grad():
        model.first.weight.mul_(2.0)
    assert not torch.equal(twin(x), before) and model.calls == twin.calls == 2
    model.first.bias = torch.nn.Parameter(torch.ones(4))  # a Parameter object replaced by another
    assert twin.first.bias is model.first.bias


def test_hooks_run_once_in_the_twin_too():
    seen: list[str] = []
    model = in_place(Model())
    model.register_forward_pre_hook(lambda module, _args: seen.append(type(module).__name__))
    model.block.register_forward_hook(lambda module, _args, _output: seen.append(type(module).__name__))
    uncompiled(model)(torch.randn(3, 4))
    assert seen == ["Model", "Block"]


def test_a_part_that_stands_in_two_places_stays_one():
    shared = torch.compile(Block(), backend=counting)
    plain = uncompiled(torch.nn.Sequential(shared, torch.nn.ReLU(), shared))
    assert plain[0] is plain[2] is shared._orig_mod


def test_a_function_is_found_under_torch_compile():
    def function(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    compiled = torch.compile(function, backend=counting)
    assert is_compiled(compiled) and unwrap_compiled(compiled, (), {}) is function


def test_a_decorator_around_something_compiled_is_not_taken_off_with_it():
    """functools.wraps copies torch.compile's mark to whatever stands around it, such as torch.autocast's own wrapper."""
    def base(x):
        return x + 1

    compiled = torch.compile(base, backend="eager")

    @functools.wraps(compiled)
    def doubled(x):
        return 2 * compiled(x)

    assert uncompiled(doubled) is None and uncompiled(compiled) is base

    class Cast(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(4, 4)

        @torch.autocast("cpu", torch.bfloat16)
        @torch.compile(backend="eager")
        def forward(self, x):
            return self.inner(x)

    assert uncompiled(Cast()) is None


def test_a_graph_module_and_what_answers_to_every_name():
    class Answers:
        def __getattr__(self, name):
            return self

        def __call__(self, x):
            return x

    assert uncompiled(Answers()) is None
    traced, x = torch.fx.symbolic_trace(nn.Sequential(nn.Linear(4, 4), nn.ReLU())), torch.randn(2, 4)
    expected = traced(x)
    traced.compile(backend="eager")
    twin = uncompiled(traced)
    assert twin is not traced and type(twin) is type(traced) and torch.equal(twin(x), expected)


def test_what_is_not_compiled_is_left_alone():
    model = Model()
    for plain in (model, model.forward, torch.relu, torch.jit.script(torch.nn.Linear(2, 2)), torch.compiler.disable(Block()),
                  torch.compiler.disable(torch.relu)):
        assert uncompiled(plain) is None and not is_compiled(plain)
    with pytest.raises(NotImplementedError, match=r"neither torch\.compile nor torch\.cuda\.make_graphed_callables is around the workload"):
        unwrap_compiled(model, (), {})


def test_a_function_compiled_somewhere_inside_is_known_once_it_ran_and_cannot_be_taken_off():
    doubled = torch.compile(lambda x: 2 * x, backend=counting)

    class Inside(Model):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return doubled(super().forward(x))

    model = Inside()
    model(torch.randn(3, 4))
    assert is_compiled(model) and uncompiled(model) is None


@pytest.mark.parametrize("way", [around, in_place, part, forward_method])
def test_the_judges_copy_in_another_dtype_is_not_compiled(way):
    copy_ = copied(way(Model()), torch.float64)
    assert copy_(torch.randn(3, 4, dtype=torch.float64)).dtype == torch.float64 and GRAPHS[0] == 0

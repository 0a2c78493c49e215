"""torch.compile's backend of graph passes: what it changes, what it refuses, and how generated files hold it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import nn

from graph_carrier import Eager
from kernelwright.optimize.passes import CATALOGUE, in_order, with_carrier
from kernelwright.probe.rewrites.graphs import GraphBackend, call_function, constant_node, tensor_of, weight_of


def doubled_weights(graph: torch.fx.GraphModule, example_inputs: Sequence[torch.Tensor]) -> int:
    places = 0
    for node in list(graph.graph.nodes):
        if node.op == "call_function" and node.target is torch._C._nn.linear:
            weight = weight_of(node.args[1], graph, example_inputs)
            assert weight is not None and tensor_of(node).shape == (2, 4)
            double = constant_node(graph, "double", 2 * weight)
            new = call_function(graph, node, nn.functional.linear, node.args[0], double, node.args[2])
            assert tensor_of(new).shape == (2, 4)
            node.replace_all_uses_with(new)
            graph.graph.erase_node(node)
            places += 1
    return places


def relu_to_neg(graph: torch.fx.GraphModule, _example_inputs: Sequence[torch.Tensor]) -> int:
    nodes = [node for node in graph.graph.nodes if node.target is torch.ops.aten.relu.default]
    for node in nodes:
        node.target = torch.ops.aten.neg.default
    return len(nodes)


def nothing(_graph: torch.fx.GraphModule, _example_inputs: Sequence[torch.Tensor]) -> int:
    return 0


@pytest.fixture
def model() -> nn.Module:
    torch._dynamo.reset()
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU()).eval()


@torch.no_grad()
def test_functional_and_aten_passes_change_what_is_compiled(model: nn.Module) -> None:
    x = torch.randn(2, 4)
    backend = Eager([doubled_weights], [relu_to_neg], [lambda: {"epilogue_fusion": False}])
    fast = backend.checked(torch.compile(model, backend=backend, mode="max-autotune-no-cudagraphs"))
    assert torch.allclose(fast(x), -nn.functional.linear(x, 2 * model[0].weight, model[0].bias))
    assert backend.found == {"doubled_weights": 1, "relu_to_neg": 1}
    assert backend.seen_options["max_autotune"] is True and backend.seen_options["epilogue_fusion"] is False


@torch.no_grad()
def test_a_pass_that_finds_nothing_makes_the_candidate_not_applicable(model: nn.Module) -> None:
    backend = Eager([doubled_weights, nothing])
    with pytest.raises(NotImplementedError, match=r"not applicable: found nothing to change in the compiled graphs: nothing$"):
        backend.checked(torch.compile(model, backend=backend))(torch.randn(2, 4))
    assert not hasattr(backend, "seen_options"), "nothing is compiled for it"
    torch._dynamo.reset()
    shipped, x = Eager([doubled_weights, nothing], strict=False), torch.randn(2, 4)
    fast = shipped.checked(torch.compile(model, backend=shipped))
    expected = nn.functional.linear(x, 2 * model[0].weight, model[0].bias).relu()
    assert torch.allclose(fast(x), expected) and torch.allclose(fast(x), expected), "a user's program goes on"


@torch.no_grad()
def test_a_pass_may_find_its_place_after_a_graph_break() -> None:
    def broken(x):
        y = torch.relu(x)
        torch._dynamo.graph_break()
        return nn.functional.linear(y, torch.eye(4), torch.ones(4)).neg()

    def neg_to_relu(graph: torch.fx.GraphModule, _example_inputs: Sequence[torch.Tensor]) -> int:
        nodes = [node for node in graph.graph.nodes if node.op == "call_method" and node.target == "neg"]
        for node in nodes:
            node.target = "relu"
        return len(nodes)

    torch._dynamo.reset()
    backend = Eager([neg_to_relu])
    assert backend.checked(torch.compile(broken, backend=backend))(torch.ones(1, 4)).tolist() == [[2, 2, 2, 2]]
    assert backend.graphs == 2


def test_an_option_that_this_inductor_lacks_makes_it_not_applicable() -> None:
    with pytest.raises(NotImplementedError, match=r"not applicable: this torch's Inductor has no option triton\.no_such"):
        GraphBackend(inductor=[lambda: {"triton.no_such": 1}])


@torch.no_grad()
def test_calls_for_their_effect_alone_survive_a_pass() -> None:
    def effect(x):
        y = x + 1
        y.mul_(3)
        return torch.relu(y)

    torch._dynamo.reset()
    backend = Eager([], [relu_to_neg])
    assert backend.checked(torch.compile(effect, backend=backend))(torch.ones(2)).tolist() == [-6, -6]


def test_graph_level_passes_get_a_carrier_and_keep_the_catalogues_order() -> None:
    alone = with_carrier([CATALOGUE["freeze_weights"]])
    assert [item.name for item in in_order(alone)] == ["freeze_weights", "compile_default"]
    tuned = [CATALOGUE["compile_max_autotune"], CATALOGUE["freeze_weights"]]
    assert with_carrier(tuned) == tuned


@torch.no_grad()
def test_a_number_of_the_model_that_changes_is_no_obstacle() -> None:
    """Dynamo reads it from a tensor then. The backend failed, and a page of warnings said so."""
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.scale = nn.Linear(4, 4), 2.0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x) * self.scale

    torch._dynamo.reset()
    scaled, backend, x = Scaled().eval(), Eager([doubled_weights]), torch.randn(2, 4)
    fast = backend.checked(torch.compile(scaled, backend=backend, fullgraph=True))
    for scale in (2.0, 3.0, 4.5):
        scaled.scale = scale
        assert torch.allclose(fast(x), scale * nn.functional.linear(x, 2 * scaled.inner.weight, scaled.inner.bias))
    assert backend.graphs == 2, "the second takes any number"

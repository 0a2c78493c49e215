"""A generated file's backend with an interpreter in the place of Inductor, or of its code generation: seconds less a test."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.aot_autograd import make_boxed_func

from kernelwright.probe.rewrites.graphs import GraphBackend


class Eager(GraphBackend):
    """Passes as in a generated file; what is compiled runs operator by operator."""

    def compiled(self, graph, example_inputs, options):
        def inner(inner_graph, inner_inputs):
            self._apply(self.aten, inner_graph, inner_inputs)
            return inner_graph.forward

        self.seen_options = options
        return aot_autograd(fw_compiler=inner)(graph, example_inputs)


class Passed:
    """A model compiled through these passes on the functional graph, and what came of it."""

    def __init__(
        self, model: Callable[..., Any], *passes: Callable[..., int], inductor: Sequence[Callable[[], dict[str, Any]]] = (),
    ) -> None:
        torch._dynamo.reset()
        self.graphs: list[torch.fx.GraphModule] = []
        self.backend = Eager([*passes, self.keep], inductor=inductor)
        self.call = self.backend.checked(torch.compile(model, backend=self.backend))

    def keep(self, graph: torch.fx.GraphModule, _example_inputs: Any) -> int:
        """Keeps a copy of the graph as the passes left it."""
        self.graphs.append(torch.fx.GraphModule(graph, torch.fx.Graph()))
        nodes = [node for node in graph.graph.nodes if node.op in ("call_function", "call_method")]
        self.targets = [getattr(node.target, "__name__", str(node.target)) for node in nodes]
        self.options = {name: dict(node.kwargs) for name, node in zip(self.targets, nodes, strict=True)}
        return 1

    def __call__(self, *args: Any) -> Any:
        with torch.no_grad():
            return self.call(*args)


class Inner:
    """A model compiled by Inductor up to its inner compile (decompositions and joint passes are Inductor's own), through these passes on
    the ATen graph; what they leave then runs operator by operator."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, model: Callable[..., Any], *passes: Callable[..., int],
        functional: Sequence[Callable[..., int]] = (), inductor: Sequence[Callable[[], dict[str, Any]]] = (),
    ) -> None:
        torch._dynamo.reset()
        monkeypatch.setattr(torch._inductor.compile_fx, "compile_fx_inner", lambda graph, _inputs, **_: make_boxed_func(graph.forward))
        self.backend = GraphBackend(functional, [*passes, self.keep], inductor)
        self.call = self.backend.checked(torch.compile(model, backend=self.backend))

    def keep(self, graph: torch.fx.GraphModule, _example_inputs: Any) -> int:
        """Notes the graph as the passes left it."""
        self.graph = graph
        self.targets = [getattr(node.target, "__name__", str(node.target)) for node in graph.graph.nodes if node.op == "call_function"]
        return 1

    def __call__(self, *args: Any) -> Any:
        with torch.no_grad():
            return self.call(*args)

"""A generated file's backend with AOTAutograd's own interpreter in Inductor's place: seconds less a test."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._dynamo.backends.common import aot_autograd

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

    def __init__(self, model: Callable[..., Any], *passes: Callable[..., int]) -> None:
        torch._dynamo.reset()
        self.graphs: list[torch.fx.GraphModule] = []
        self.backend = Eager([*passes, self.keep])
        self.call = self.backend.checked(torch.compile(model, backend=self.backend))

    def keep(self, graph: torch.fx.GraphModule, _example_inputs: Any) -> int:
        """Keeps a copy of the graph as the passes left it."""
        self.graphs.append(torch.fx.GraphModule(graph, torch.fx.Graph()))
        self.targets = [getattr(node.target, "__name__", str(node.target)) for node in graph.graph.nodes
                        if node.op in ("call_function", "call_method")]
        return 1

    def __call__(self, *args: Any) -> Any:
        with torch.no_grad():
            return self.call(*args)

"""Independent branches of the model on CUDA streams of their own, so that small kernels fill the device together.

Branches are found on Dynamo's graph: two products (or convolutions, attentions) of which neither needs the other. Every operator stays
as it is. The host launches as much as before: worth it under a CUDA graph.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.fx

from .tracing import changes_in_place


def lanes_of(graph: torch.fx.Graph, most: int = 4) -> dict[torch.fx.Node, int]:
    """The stream (0: the caller's) that each operator runs on. All 0 where nothing can run beside anything else.

    A heavy operator takes a lane whose last heavy operator it depends on, that of its newest input first; if there is none it opens
    another lane. Light ones stay with their newest input.
    """
    heavy = ("linear", "matmul", "mm", "bmm", "addmm", "baddbmm", "einsum", "bilinear", "scaled_dot_product_attention", "conv1d", "conv2d",
             "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
    calls = [node for node in graph.nodes if node.op in ("call_function", "call_method", "call_module")]
    if any(changes_in_place(node) for node in calls):
        return dict.fromkeys(graph.nodes, 0)
    lanes: dict[torch.fx.Node, int] = dict.fromkeys(graph.nodes, 0)
    needs: dict[torch.fx.Node, int] = {}  # the calls before it that it depends on, one bit each
    last: list[int] = [0]  # of each lane: the bit of its last heavy operator
    for index, node in enumerate(calls):
        inputs = sorted((source for source in node.all_input_nodes if source in needs), key=calls.index, reverse=True)
        bit = 1 << index
        needs[node] = bit
        for source in inputs:
            needs[node] |= needs[source]
        lanes[node] = lanes[inputs[0]] if inputs else 0
        name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
        if node.op == "call_module":
            name = type(graph.owning_module.get_submodule(str(node.target))).__name__.lower()
        if name not in heavy:
            continue
        free = [lane for lane in dict.fromkeys([*(lanes[source] for source in inputs), *range(len(last))]) if not last[lane] & ~needs[node]]
        if free:
            lanes[node] = free[0]
        elif len(last) < most:
            last.append(0)
            lanes[node] = len(last) - 1
        last[lanes[node]] = bit
    return lanes


def side_streams(model: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[..., Any]:
    """The model as Dynamo's graphs, run operator by operator on several streams that meet before it returns."""
    found = []

    class OnStreams(torch.fx.Interpreter):  # type: ignore[misc]
        def __init__(self, graph: torch.fx.GraphModule, lanes: dict[torch.fx.Node, int]) -> None:
            super().__init__(graph)
            self.lanes = lanes
            self.crossing = {node for node in graph.graph.nodes if any(lanes[user] != lanes[node] for user in node.users)}
            # What another stream reads lives until all have met: its memory must not be handed out again before.
            for user, used in self.user_to_last_uses.items():
                self.user_to_last_uses[user] = [node for node in used if node not in self.crossing]

        def run(self, *values: Any, **options: Any) -> Any:
            main = torch.cuda.current_stream()
            self.streams = [main, *(torch.cuda.Stream() for _ in range(max(self.lanes.values())))]
            self.done: dict[torch.fx.Node, Any] = {}
            for stream in self.streams[1:]:
                stream.wait_stream(main)
            output = super().run(*values, **options)
            for stream in self.streams[1:]:
                main.wait_stream(stream)
            return output

        def run_node(self, node: torch.fx.Node) -> Any:
            stream = self.streams[self.lanes[node]]
            for source in node.all_input_nodes:
                if self.lanes[source] != self.lanes[node] and source in self.done:
                    stream.wait_event(self.done[source])
            with torch.cuda.stream(stream):
                result = super().run_node(node)
                if node in self.crossing and node.op not in ("placeholder", "get_attr"):
                    self.done[node] = stream.record_event()
            return result

    def backend(graph: torch.fx.GraphModule, _inputs: list[torch.Tensor]) -> Callable[..., Any]:
        lanes = lanes_of(graph.graph)
        if max(lanes.values()) == 0:
            return graph.forward  # type: ignore[no-any-return]
        found.append(lanes)
        return OnStreams(graph, lanes).run

    compiled: Callable[..., Any] = torch.compile(model, backend=backend, dynamic=False)
    compiled(*args, **kwargs)  # Dynamo traces at the first call
    if not found:
        raise NotImplementedError("not applicable: no two heavy operators of the model are independent of each other")
    return compiled

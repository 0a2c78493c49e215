"""Host tensors that the model copies to the GPU at each call, from pinned memory and ahead of their use on a stream of their own.

For weights that do not fit on the device: each copy runs while the operators before it compute, two at a time at most.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.fx

from .tracing import host_copies, looks_of, traced_call


def pinned_copies(model: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.nn.Module:
    """A torch.fx copy of the model (weights on the device shared) that starts these copies early. A change of a host tensor in place
    is seen at the next call."""
    traced = traced_call(model, args, kwargs)
    copies = [one for one in host_copies(traced, looks_of(traced, args, kwargs)) if one[1].dtype == one[3]]
    if not copies:
        raise NotImplementedError("not applicable: the model copies no tensor of its own from the host as it is")
    sources = [source for _node, source, _device, _dtype in copies]
    pinned = [source.detach().pin_memory() for source in sources]
    seen = [0 if source.is_inference() else source._version for source in sources]
    waiting: dict[int, tuple[torch.Tensor, Any]] = {}
    copying = torch.cuda.Stream()
    ahead = 2

    def start(index: int) -> None:
        if index >= len(copies):
            return
        source = sources[index]
        if not source.is_inference() and source._version != seen[index]:
            copying.synchronize()  # an earlier copy may still read the pinned memory
            pinned[index].copy_(source)
            seen[index] = source._version
        with torch.cuda.stream(copying):
            there = pinned[index].to(copies[index][2], non_blocking=True)
            waiting[index] = there, copying.record_event()

    class Begin(torch.nn.Module):  # type: ignore[misc]
        def forward(self) -> None:
            copying.wait_stream(torch.cuda.current_stream())
            for index in range(ahead):
                start(index)

    class Fetch(torch.nn.Module):  # type: ignore[misc]
        def __init__(self, index: int) -> None:
            super().__init__()
            self.index = index

        def forward(self) -> torch.Tensor:
            there, event = waiting.pop(self.index)
            torch.cuda.current_stream().wait_event(event)
            there.record_stream(torch.cuda.current_stream())
            start(self.index + ahead)
            return there

    traced.add_submodule("begin_copies", Begin())
    first = next(node for node in traced.graph.nodes if node.op != "placeholder")
    with traced.graph.inserting_before(first):
        traced.graph.call_module("begin_copies")
    for index, (node, *_rest) in enumerate(copies):
        traced.add_submodule(f"copy_{index}", Fetch(index))
        with traced.graph.inserting_before(node):
            node.replace_all_uses_with(traced.graph.call_module(f"copy_{index}"))
        traced.graph.erase_node(node)
    traced.graph.lint()
    traced.recompile()
    return traced

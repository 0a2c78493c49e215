"""Host tensors that the model copies to the GPU at each call (a mask or table kept on the CPU, a constant): they stay there instead.

Exact: the same values. A change of the host's tensor in place is seen at the next call, unless the call is replayed as a CUDA graph.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.fx

from .tracing import changes_in_place, host_copies, looks_of, traced_call
from .trees import leaves


def resident_constants(model: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.nn.Module:
    """A torch.fx copy of the model (weights shared) that holds these tensors on the device; at most half of its free memory."""
    traced = traced_call(model, args, kwargs)
    copies = host_copies(traced, looks_of(traced, args, kwargs))
    if not copies:
        raise NotImplementedError("not applicable: the model copies no tensor of its own from the host")
    if any(changes_in_place(node) for node in traced.graph.nodes):
        raise NotImplementedError("not applicable: the model changes tensors in place, and these might be among them")

    class Resident(torch.nn.Module):  # type: ignore[misc]
        is_one_operator = True  # traced again, what it does at each call would be done once
        def __init__(self, source: torch.Tensor, device: str, dtype: torch.dtype) -> None:
            super().__init__()
            self.source, self.seen = [source], version(source)
            self.register_buffer("here", source.to(device, dtype), persistent=False)
            self.leaves = False

        def forward(self) -> torch.Tensor:
            if version(self.source[0]) != self.seen:
                self.here.copy_(self.source[0])
                self.seen = version(self.source[0])
            return self.here.clone() if self.leaves else self.here

    def version(tensor: torch.Tensor) -> int:
        return 0 if tensor.is_inference() else tensor._version

    size = sum(source.numel() * source.element_size() for _node, source, _device, _dtype in copies)
    if size > torch.cuda.mem_get_info()[0] / 2:
        raise NotImplementedError(f"not applicable: {size / 2**20:.0f} MiB do not fit into half of the device's free memory")
    for index, (node, source, device, dtype) in enumerate(copies):
        traced.add_submodule(f"resident_{index}", Resident(source, device, dtype))
        with traced.graph.inserting_before(node):
            node.replace_all_uses_with(traced.graph.call_module(f"resident_{index}"))
        traced.graph.erase_node(node)
    traced.graph.lint()
    traced.recompile()
    given = [leaf.untyped_storage() for _path, leaf in leaves(traced(*args, **kwargs)) if isinstance(leaf, torch.Tensor)]
    for module in traced.modules():
        if isinstance(module, Resident):  # what a caller gets may be written to
            module.leaves = module.here.untyped_storage()._cdata in [storage._cdata for storage in given]
    return traced

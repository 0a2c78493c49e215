"""What is known about a loaded workload: WorkloadFacts as a plain dict."""

from __future__ import annotations

import sys
from typing import Any

import torch

from . import tree
from .failures import workload_failed
from .loaders import LoadedWorkload
from .params import plain
from .rewrites.unwrap_compiled import is_graphed, is_wrapped


def describe(workload: LoadedWorkload, output: Any) -> dict[str, Any]:
    """WorkloadFacts. output: of one call. Raises no_tensor_output when no tensor came out."""
    outputs = tree.leaves(output)
    if not outputs:
        raise workload_failed("no_tensor_output", f"one call returned no tensor, but {type(output).__name__}", where=workload.path,
                              fix="return the computed tensor (or a tuple, dict or dataclass that holds it)")
    model = workload.model
    weights = list(model.parameters()) if isinstance(model, torch.nn.Module) else []
    inputs = tree.leaves(workload.raw_input)
    return {
        "form": workload.form,
        "version": workload.version,
        "versions": list(workload.versions),
        "params": {name: plain(value) for name, value in workload.params.items()},
        "inputs": [_spec(path, tensor) for path, tensor in inputs],
        "outputs": [_spec(path, tensor) for path, tensor in outputs],
        "training": workload.training,
        "dtype": main_dtype([*weights, *(tensor for _, tensor in inputs)]) or main_dtype([tensor for _, tensor in outputs]),
        "parameter_count": sum(weight.numel() for weight in weights),
        "parameter_bytes": sum(weight.numel() * weight.element_size() for weight in weights),
        "already_compiled": is_compiled(model),
        "compiled_inside": is_compiled(model) and not is_wrapped(model),
        "already_graphed": is_graphed(model),
    }


def main_dtype(tensors: list[torch.Tensor]) -> str:
    """The floating (or complex) dtype with the most bytes, by its short name; "" when there is none."""
    sizes: dict[torch.dtype, int] = {}
    for tensor in tensors:
        if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
            sizes[tensor.dtype] = sizes.get(tensor.dtype, 0) + tensor.numel() * tensor.element_size()
    return plain_dtype(max(sizes, key=lambda dtype: sizes[dtype])) if sizes else ""


def plain_dtype(dtype: torch.dtype) -> str:
    """torch's short name, e.g. "bfloat16"."""
    return str(dtype).removeprefix("torch.")


def is_compiled(model: Any) -> bool:
    """True when the callable or a part of it went through torch.compile, or its calls so far compiled anything."""
    utilities = sys.modules.get("torch._dynamo.utils")
    # A callable that compiles inside itself. Hooks or a dispatch mode around it would compile it anew (H200: over 40 s).
    if utilities is not None and utilities.counters.get("frames"):
        return True
    return is_wrapped(model)


def forget_compiled() -> None:
    """What was compiled so far is dropped, so that is_compiled tells again of what is called from now on."""
    if "torch._dynamo" in sys.modules:
        torch._dynamo.reset()
        sys.modules["torch._dynamo.utils"].counters.clear()


def is_scripted(model: Any) -> bool:
    """True for TorchScript modules and functions."""
    return isinstance(model, (torch.jit.ScriptModule, torch.jit.ScriptFunction))


def _spec(path: str, tensor: torch.Tensor) -> dict[str, Any]:
    return {"path": path, "shape": list(tensor.shape), "dtype": plain_dtype(tensor.dtype), "device": tensor.device.type}

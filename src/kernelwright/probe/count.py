"""FLOPs and least bytes of one call, and the record of its operators, by watching what it dispatches.

Runs the call once more under a TorchDispatchMode, after all timing. FLOPs come from torch.utils.flop_counter's formulas.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from . import tree
from .facts import is_compiled, is_scripted, plain_dtype
from .formulas import HIDES_WORK, formula, is_ours
from .loaders import LoadedWorkload
from .rewrites.unwrap_compiled import is_graphed, uncompiled

_QUERIES = ("size", "sym_size", "stride", "sym_stride", "storage_offset", "sym_storage_offset", "numel", "sym_numel", "dim", "device",
            "layout", "is_contiguous", "sym_is_contiguous", "is_strides_like_format", "is_non_overlapping_and_dense", "_local_scalar_dense")
_NO_TRAFFIC = ("empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided", "set_", "resize_")
_OVERWRITES = ("copy_", "fill_", "zero_", "normal_", "uniform_", "random_", "bernoulli_", "exponential_")
"""In-place operators that do not read what they replace."""
_GATHERS = ("embedding", "index", "index_select", "gather", "take", "_embedding_bag", "_embedding_bag_forward_only")
"""Operators that read at most as many bytes of their first tensor as they write."""

_NAMESPACES = ("aten::", "prims::", "prim::", "c10d::", "_c10d_functional::")
"""Whose operators without a formula do no matrix work (HIDES_WORK apart)."""

Region = tuple[int, tuple[int, ...], tuple[int, ...]]


@dataclass
class Recording:
    """What one call dispatched."""

    records: list[dict[str, Any]] = field(default_factory=list)
    """OpRecord dicts in dispatch order."""
    touched: dict[int, dict[Region, float]] = field(default_factory=dict)
    """Bytes by region, by the address of the storage, of everything that an operator read or wrote."""
    uncounted: set[str] = field(default_factory=set)
    """Operators that hide matrix work from the count."""
    own_formulas: bool = False
    hidden_launches: int = 0
    """Triton kernels and CUDA graphs, which the dispatcher does not see."""

    @property
    def flops(self) -> float:
        return float(sum(record["flops"] or 0 for record in self.records))

    def by_operator(self) -> dict[str, float]:
        """FLOPs by operator, of those that torch has a formula for."""
        found: dict[str, float] = {}
        for record in self.records:
            if record["flops"]:
                found[record["name"]] = found.get(record["name"], 0.0) + float(record["flops"])
        return found


class OpRecorder(TorchDispatchMode):  # type: ignore[misc]
    """Appends every dispatched operator to a Recording."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """torch would wrap __torch_dispatch__ in _disable_dynamo, whose first call imports torch._dynamo: 1.3 s. Nothing compiles it."""
        return False

    def __init__(self, recording: Recording) -> None:
        super().__init__()
        self.recording = recording

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        packet = getattr(func, "_overloadpacket", None)
        if packet is None:
            return func(*args, **kwargs)
        short = str(packet.__name__)
        if short in _QUERIES or func.namespace == "profiler":
            return func(*args, **kwargs)
        if formula(packet) is None:
            # In inference mode composite operators (linear) arrive whole: what they consist of is what runs.
            with self:
                parts = func.decompose(*args, **kwargs)
            if parts is not NotImplemented:
                return parts
        output = func(*args, **kwargs)
        _note(self.recording, func, short, args, kwargs, output)
        return output


def _note(recording: Recording, func: Any, short: str, args: Any, kwargs: dict[str, Any], output: Any) -> None:
    name = str(func._schema.name)
    inputs = [tensor for _, tensor in tree.leaves((list(args), kwargs))]
    outputs = tree.tensors(output)
    count = formula(func._overloadpacket)
    recording.own_formulas = recording.own_formulas or (count is not None and is_ours(name))
    if name in HIDES_WORK or (count is None and not name.startswith(_NAMESPACES)):
        recording.uncounted.add(name)
    recording.records.append({
        "name": name,
        "dims": [list(tensor.shape) for tensor in inputs],
        "dtype": next((plain_dtype(tensor.dtype) for tensor in [*inputs, *outputs] if tensor.dtype.is_floating_point), ""),
        "flops": float(count(*args, **kwargs, out_val=output)) if count is not None else None,
        "bytes": _traffic(recording, func, short, inputs, outputs),
    })


def _traffic(recording: Recording, func: Any, short: str, inputs: list[torch.Tensor], outputs: list[torch.Tensor]) -> float:
    """Bytes of one operator: each distinct region of its inputs read once, each output written once. Views move nothing."""
    in_place = any(argument.alias_info is not None and argument.alias_info.is_write for argument in func._schema.arguments)
    if short in _NO_TRAFFIC or (not in_place and outputs and all(_is_view(tensor, inputs) for tensor in outputs)):
        return 0.0
    written = outputs or (inputs[:1] if in_place else [])
    out_bytes = covered(written)
    read = inputs[1:] if short in _OVERWRITES or short in _GATHERS else inputs
    in_bytes = covered(read)
    _touch(recording, [*read, *written])
    if short in _GATHERS and inputs:
        in_bytes += min(covered(inputs[:1]), out_bytes)
        _touch(recording, inputs[:1], limit=out_bytes)
    return in_bytes + out_bytes


def _touch(recording: Recording, tensors: list[torch.Tensor], limit: float = float("inf")) -> None:
    for tensor in tensors:
        known = recording.touched.setdefault(_address(tensor), {})
        region = _region(tensor)
        known[region] = max(known.get(region, 0.0), min(region_bytes(tensor), limit))


def _is_view(output: torch.Tensor, inputs: list[torch.Tensor]) -> bool:
    """An output that shares the storage of an input of an operator that writes in place nowhere."""
    address = _address(output)
    return address != 0 and any(_address(tensor) == address for tensor in inputs)


def _region(tensor: torch.Tensor) -> Region:
    try:
        return int(tensor.storage_offset()), tuple(tensor.shape), tuple(tensor.stride())
    except (RuntimeError, NotImplementedError):
        return 0, tuple(tensor.shape), ()


def _address(tensor: torch.Tensor) -> int:
    """Address of a tensor's storage; the object's id for tensors without one (sparse, wrapper subclasses, empty)."""
    try:
        return int(tensor.untyped_storage().data_ptr()) or id(tensor)
    except (RuntimeError, NotImplementedError):
        return id(tensor)


def _storage_bytes(tensor: torch.Tensor) -> float:
    try:
        return float(tensor.untyped_storage().nbytes())
    except (RuntimeError, NotImplementedError):
        return float(tensor.numel() * tensor.element_size())


def covered(tensors: list[torch.Tensor], touched: dict[int, dict[Region, float]] | None = None) -> float:
    """Bytes of the storage that the tensors cover together: each region once, never more than a storage holds.

    touched: also never more than was touched of that storage.
    """
    regions: dict[int, dict[Region, float]] = {}
    limits: dict[int, float] = {}
    for tensor in tensors:
        address = _address(tensor)
        regions.setdefault(address, {})[_region(tensor)] = region_bytes(tensor)
        limits[address] = _storage_bytes(tensor)
        if touched is not None:
            limits[address] = min(limits[address], sum(touched.get(address, {}).values()))
    return float(sum(min(sum(parts.values()), limits[address]) for address, parts in regions.items()))


def region_bytes(tensor: torch.Tensor) -> float:
    """Bytes of the storage that one tensor covers: expanded (stride 0) dimensions once, never more than its storage."""
    size = float(tensor.element_size())
    try:
        strides = tensor.stride()
    except (RuntimeError, NotImplementedError):
        return float(tensor.numel() * tensor.element_size())
    for length, stride in zip(tensor.shape, strides, strict=True):
        size *= length if stride != 0 or length == 0 else 1
    return min(size, _storage_bytes(tensor))


@contextmanager
def _hidden_launches(recording: Recording) -> Iterator[None]:
    """Counts what Python launches past the dispatcher: Triton kernels and CUDA graph replays."""
    owners = [(getattr(sys.modules.get("triton.runtime.jit"), "JITFunction", None), "run"), (torch.cuda.CUDAGraph, "replay")]
    with ExitStack() as stack:
        for owner, name in owners:
            if owner is not None and hasattr(owner, name):
                stack.callback(setattr, owner, name, getattr(owner, name))
                setattr(owner, name, _counting(getattr(owner, name), recording))
        yield


def _counting(original: Callable[..., Any], recording: Recording) -> Callable[..., Any]:
    def launch(self: Any, *args: Any, **kwargs: Any) -> Any:
        recording.hidden_launches += 1
        return original(self, *args, **kwargs)

    return launch


def record(call: Callable[[], Any], *, force_eager: bool = False) -> tuple[Recording, Any]:
    """One call's Recording and its output. force_eager: run what is compiled inside it uncompiled (torch >= 2.6)."""
    recording = Recording()
    with ExitStack() as stack:
        if force_eager:
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        stack.enter_context(_hidden_launches(recording))
        stack.enter_context(OpRecorder(recording))
        output = call()
    return recording, output


def why_not_countable(workload: LoadedWorkload) -> str | None:
    """The reason why a call cannot be watched at all; None when it can."""
    if is_scripted(workload.model):
        return "TorchScript callable: torch cannot count inside it"
    if is_compiled(workload.model) and not hasattr(torch.compiler, "set_stance"):
        return f"compiled callable: torch {torch.__version__} cannot run it uncompiled to count (2.6 can)"
    return None


def count(workload: LoadedWorkload) -> tuple[dict[str, Any], list[dict[str, Any]] | None]:
    """(ProbeWork, OpRecord dicts or None) of one call. The workload's own flops() and bytes_moved() win over the count."""
    own_flops, own_bytes = workload.flops(), workload.bytes_moved()
    work: dict[str, Any] = {"flops": own_flops, "flops_source": "workload flops()",
                            "min_bytes": own_bytes, "bytes_source": "workload bytes_moved()"}
    reason = why_not_countable(workload)
    compiled = is_compiled(workload.model)
    hidden = compiled
    if is_graphed(workload.model):  # no operator of a replay is seen
        workload, hidden = dataclasses.replace(workload, model=uncompiled(workload.model)), True
    recording, output = None, None
    if reason is None:
        recording, output = record(workload.caller(), force_eager=compiled)
        reason = _flops_reason(recording)
    if own_flops is None:
        exact = recording is not None and reason is None
        work["flops"] = recording.flops if recording is not None and exact else None
        work["flops_source"] = _flops_source(recording) if recording is not None and exact else str(reason)
    if own_bytes is None:
        work["min_bytes"], work["bytes_source"] = _least_bytes(workload, recording, workload.step() if output is None else output)
    work["counted"] = recording.by_operator() if recording is not None else {}
    return work, recording.records if recording is not None and not hidden else None


def _flops_reason(recording: Recording) -> str | None:
    """Why the counted FLOPs would be wrong; None when they hold."""
    if recording.hidden_launches:
        return "the call launches Triton kernels or CUDA graphs, whose work torch cannot count: give the workload a flops(**params)"
    if recording.uncounted:
        return f"torch has no FLOP formula for {', '.join(sorted(recording.uncounted)[:3])}"
    if not recording.flops:
        return "the call has no operator that torch counts FLOPs of (matrix products, convolutions, attention)"
    return None


def _flops_source(recording: Recording) -> str:
    return "torch FlopCounterMode" + (", own formulas where torch has none" if recording.own_formulas else "")


def _least_bytes(workload: LoadedWorkload, recording: Recording | None, output: Any) -> tuple[float, str]:
    """Bytes that one call must move at least: inputs and parameters read, outputs written, each storage once.

    Where the operators were watched, only what they touched of the parameters counts (an embedding's rows, not its table).
    A training step also writes each parameter's gradient once.
    """
    model = workload.model
    weights = [*model.parameters(), *model.buffers()] if isinstance(model, torch.nn.Module) else []
    watched = recording is not None and bool(recording.records) and not recording.hidden_launches
    own = {_address(weight) for weight in weights}
    others = [tensor for tensor in tree.tensors((workload.args, workload.kwargs, output)) if _address(tensor) not in own]
    total = covered(weights, recording.touched if recording is not None and watched else None) + covered(others)
    if not workload.training:
        return total, "inputs + parameters + outputs once"
    total += covered([weight.grad for weight in weights if weight.grad is not None])
    return total, "inputs + parameters + outputs + gradients once"

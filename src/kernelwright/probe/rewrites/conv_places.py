"""Convolutions of a traced model that kernels of one's own may take over. Copied into files that have such kernels."""

from __future__ import annotations

import copy
import itertools
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx
import torch.nn.functional as F

from .batch_norms import fold_batch_norms
from .measuring import errors, seconds
from .side_calls import on_the_side
from .tracing import traced_call

CLAMPS = ("none", "relu", "relu6")
"""What a convolution can end with."""
FASTER = 1.03
"""A kernel must be this much faster than the library's to take its place: the timing's own noise."""
AS_EXACT = 1.1
"""Errors of one size: which of two sums in float32 (or of two roundings to TF32) is off by some per cent more is chance."""
LIMIT_S = 20.0
"""No further place is tried after so long: each tile is compiled where it has not been yet, in one to three seconds."""
LARGEST_IMAGE = 2**31
"""Numbers of an image, which kernels count in 32 bits."""
TYPES_TAKEN = (torch.float32, torch.bfloat16, torch.float16)


class Stage:
    """One convolution with what follows it, as numbers: how it lies in memory, its activation, and the window of a max pooling whose
    windows touch and do not overlap (1: none)."""

    def __init__(self, conv: torch.nn.Conv2d, activation: str, pool: int = 1) -> None:
        self.conv, self.activation, self.pool = conv, activation, pool
        self.depthwise = conv.groups == conv.in_channels == conv.out_channels and conv.in_channels > 1

    def library(self, x: torch.Tensor) -> torch.Tensor:
        """The library's own operators."""
        y = self.conv(x)
        y = y if self.activation == "none" else F.relu_(y) if self.activation == "relu" else F.hardtanh_(y, 0.0, 6.0)
        return y if self.pool == 1 else F.max_pool2d(y, self.pool)

    def geometry(self) -> list[int]:
        """Window, stride, padding, dilation: two numbers each."""
        conv = self.conv
        return [*conv.kernel_size, *conv.stride, *conv.padding, *conv.dilation]


Place = tuple[Stage, torch.fx.Node, torch.fx.Node]
"""A convolution with its first and its last node."""


def has_own_ways(module: Any) -> bool:
    """Whether a module does more than its type says: hooks, or a forward of its own."""
    return bool(module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module))


def is_plain(conv: Any) -> bool:
    """Whether it is a convolution as torch has it, with zeros around the image and finite weights that lie as they were made."""
    if type(conv) is not torch.nn.Conv2d or has_own_ways(conv) or isinstance(conv.padding, str):
        return False
    weight = conv.weight
    return bool(conv.padding_mode == "zeros" and weight.dtype in TYPES_TAKEN and weight.is_contiguous() and weight.isfinite().all())


def computable(x: torch.Tensor, weight: torch.Tensor) -> bool:
    """Whether the kernels take this input."""
    alike = x.is_cuda and x.device == weight.device and x.dtype == weight.dtype
    return bool(alike and x.dim() == 4 and x.is_contiguous() and 0 < x[:1].numel() < LARGEST_IMAGE)


def left_to_library(x: torch.Tensor, weight: torch.Tensor, layers: torch.nn.Module) -> bool:
    """Whether a call is one that the kernels were not chosen for: another layout or type, autocast, a gradient that is wanted."""
    wants_gradient = torch.is_grad_enabled() and (x.requires_grad or any(one.requires_grad for one in layers.parameters()))
    return bool(x.dtype != weight.dtype or x.dtype not in TYPES_TAKEN or x.device != weight.device or x.dim() != 4 or not x.is_contiguous()
                or wants_gradient or torch.is_autocast_enabled(x.device.type))


def is_watched(x: torch.Tensor) -> bool:
    """Whether somebody looks on who must see one operator. Past torch's dispatcher else: an operator costs the host more than a kernel."""
    return bool(torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack() or type(x) is not torch.Tensor)


def convolved_size(x: torch.Tensor, geometry: Sequence[int]) -> tuple[int, int]:
    """Rows and columns of the result (torch.nn.Conv2d's formula)."""
    rows, columns = ((x.shape[2 + axis] + 2 * geometry[4 + axis] - geometry[6 + axis] * (geometry[axis] - 1) - 1) // geometry[2 + axis] + 1
                     for axis in (0, 1))
    return rows, columns


def sole_reader(node: torch.fx.Node) -> torch.fx.Node | None:
    """What alone uses a node's result, and nothing else with it."""
    user = next(iter(node.users)) if len(node.users) == 1 else None
    return user if user is not None and user.all_input_nodes == [node] else None


def called_module(node: torch.fx.Node, modules: dict[str, Any]) -> Any:
    """The module that a node calls, where that does no more than its type says."""
    module = modules.get(str(node.target)) if node.op == "call_module" else None
    return module if module is not None and not has_own_ways(module) else None


def activation_after(node: torch.fx.Node, modules: dict[str, Any]) -> tuple[str, torch.fx.Node]:
    """The activation that alone uses a node's result, and the node that it ends with."""
    user = sole_reader(node)
    if user is None:
        return "none", node
    if user.op == "call_module":  # whose target is an attribute's name: "relu" may be anything
        name = {torch.nn.ReLU: "relu", torch.nn.ReLU6: "relu6"}.get(type(called_module(user, modules)), "none")
    else:
        name = {F.relu: "relu", torch.relu: "relu", F.relu6: "relu6", "relu": "relu"}.get(user.target, "none")
    return (name, user) if name != "none" else ("none", node)


def put_in_place(graph: torch.fx.GraphModule, chain: Sequence[Place], module: torch.nn.Module) -> None:
    """The module stands where the first convolution stood: what it reads may be written over before the last one's turn."""
    first, last = chain[0][1], chain[-1][2]
    name = next(name for name in (f"convolutions_{number}" for number in itertools.count()) if not hasattr(graph, name))
    graph.add_submodule(name, module)
    with graph.graph.inserting_before(first):
        new = graph.graph.call_module(name, (first.args[0],))
    last.replace_all_uses_with(new)
    gone = last
    while gone is not first:
        before = gone.all_input_nodes[0]
        graph.graph.erase_node(gone)
        gone = before
    graph.graph.erase_node(first)


def library_seconds(chain: Sequence[Place], x: torch.Tensor) -> list[float]:
    """What the library takes for each stage."""
    found = []
    for stage, _node, _last in chain:
        source = x
        found.append(seconds(lambda: stage.library(source)))  # noqa: B023 called at once
        x = stage.library(source)
    return found


def replace_slowest_first(
    graph: torch.fx.GraphModule, chains: Sequence[Sequence[Place]], seen: dict[torch.nn.Module, torch.Tensor],
    library_s: Callable[[Sequence[Place], torch.Tensor], list[float]],
    replacements: Callable[[Sequence[Place], torch.Tensor, list[float]], Sequence[tuple[int, int, torch.nn.Module]]],
) -> int:
    """Put modules in the place of convolutions, those first that take the library longest, until LIMIT_S have passed. Returns how many.

    replacements: (a chain, its input, the library's seconds for each stage) -> (first stage, one behind the last, what takes their place).
    """
    count, start, timed = 0, time.perf_counter(), []
    for chain in chains:
        x = seen[chain[0][0].conv]
        with torch.no_grad(), torch.cuda.device_of(x):
            timed.append((library_s(chain, x), chain, x))
    for taken_s, chain, x in sorted(timed, key=lambda item: -sum(item[0])):
        if time.perf_counter() - start > LIMIT_S:
            break
        with torch.no_grad(), torch.cuda.device_of(x):
            chosen = replacements(chain, x, taken_s)
        for begin, end, module in chosen:
            put_in_place(graph, chain[begin:end], module)
            count += 1
    if count:
        graph.delete_all_unused_submodules()
        graph.recompile()
    return count


def sampled(x: torch.Tensor, stages: Sequence[Stage]) -> torch.Tensor:
    """Images to compare on: 4 M numbers of the input or of what a stage makes of it, or one image. Their count is a multiple of 16 where
    that of all is, else it is not: for a size that is, Triton compiles a kernel of its own."""
    shape, numbers = torch.empty(1, *x.shape[1:], device="meta"), x[0].numel()
    for stage in stages:
        shape = shape.new_empty(1, stage.conv.out_channels, *convolved_size(shape, stage.geometry()))
        numbers = max(numbers, shape.numel())
    count = max(1, min(len(x), 2**22 // max(1, numbers)))
    if 16 <= count < len(x) and len(x) % 16 == 0:
        count -= count % 16
    elif 16 <= count < len(x) and count % 16 == 0:
        count -= 1
    return x[:count]


def exactness(stages: Sequence[Stage], x: torch.Tensor) -> Callable[[torch.nn.Module], bool]:
    """What says whether a kernel errs by no more than the library, on some of these images; by AS_EXACT more where it computes as the
    library does, not where it makes up for narrow products (its `compensated`)."""
    sample = sampled(x, stages)
    expected, exact = sample, sample.double()
    for stage in stages:
        expected = stage.library(expected)
        exact = Stage(copy.deepcopy(stage.conv).double(), stage.activation, stage.pool).library(exact)
    most = errors(expected, exact)

    def as_exact(module: torch.nn.Module) -> bool:
        room = 1.0 if getattr(module, "compensated", False) else AS_EXACT
        return all(error <= room * limit for error, limit in zip(errors(module(sample), exact), most, strict=True))

    return as_exact


def traced_convolutions(
    model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], takes: Callable[[Any], bool],
) -> tuple[torch.fx.GraphModule, dict[torch.nn.Module, torch.Tensor]]:
    """(a copy of the model that shares its weights, batch norms folded; the input of each module that `takes` accepts and that kernels can
    read, of those that this call calls once)."""
    calls: dict[torch.nn.Module, list[tuple[Any, ...]]] = {}
    with on_the_side(model):
        twin = traced_call(model, args, kwargs)
        fold_batch_norms(twin, args, kwargs)
        watches = [module.register_forward_pre_hook(lambda module, given: calls.setdefault(module, []).append(given))
                   for module in twin.modules() if takes(module)]
        with torch.no_grad():
            twin(*args, **kwargs)
    for watch in watches:
        watch.remove()
    return twin, {module: given[0][0] for module, given in calls.items()
                  if len(given) == 1 and len(given[0]) == 1 and computable(given[0][0], module.weight)}

"""Depthwise and 1x1 convolutions with batch norm and ReLU in Triton kernels, a depthwise one and the 1x1 after it in one kernel.

The library reads and writes memory for each operator. Here a result goes through memory once, and what is between a depthwise and a 1x1
convolution not at all. Each place is measured on this call's inputs, and stays as it is where nothing is faster and as exact.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx
import torch.nn.functional as F

from .choices import Choices, machine_of
from .conv_kernels import depthwise_kernel, depthwise_rows_kernel, pointwise_kernel, triton
from .conv_places import (
    CLAMPS,
    FASTER,
    Place,
    Stage,
    activation_after,
    convolved_size,
    exactness,
    is_plain,
    is_watched,
    left_to_library,
    library_seconds,
    replace_slowest_first,
    traced_convolutions,
)
from .float32_flags import convolutions_are_tf32, float32_flags
from .measuring import seconds

BLOCKS = (512, 1024)
"""Places a program of the depthwise kernel; fewer where a plane has fewer."""
ROWS = 14
"""Rows a program of the kernel that reads each row once, at most: their sums are unrolled. Two rows more are read for a window of 3."""
ROWS_NUMBERS = (256, 512)
"""Numbers of a row of the planes of such a program: two or four a thread."""
ROWS_WINDOW = 25
"""Its largest window: all of it is unrolled."""
TILES = ((128, 64, 32, 4, 3), (64, 128, 32, 4, 3), (64, 64, 32, 4, 4), (256, 64, 32, 8, 3))
"""Channels x places x depth of the 1x1 kernel, warps, stages."""
PLACES = (32, 64)
"""Places of a tile that computes the depthwise part too, 16 deep: a thread holds four to eight of its numbers. One stage: what is pipelined
is copied to shared memory, each tap of it."""
SPANS = {"first": (0, 1), "second": (1, 2), "both": (0, 2)}
"""Which stages of a chain a kernel computes: the first, and one behind the last."""
MATRIX_NUMBERS = 6
"""Of the tile of a kernel that ends in a 1x1 convolution; the others have one or four."""
CONVOLUTION_CHOICES = Choices("separable_convolutions", SPANS, (1, 4, MATRIX_NUMBERS))
LARGEST_WINDOW = 49
"""Of a depthwise kernel a row of the window is unrolled."""


def stage_of(conv: Any, activation: str) -> Stage | None:
    """A convolution that the kernels can compute; None for any other."""
    if type(conv) is not torch.nn.Conv2d:
        return None
    stage = Stage(conv, activation)
    plain = conv.groups == 1 and stage.geometry() == [1, 1, 1, 1, 0, 0, 1, 1]
    fits = plain or (stage.depthwise and conv.kernel_size[0] * conv.kernel_size[1] <= LARGEST_WINDOW)
    return stage if fits and is_plain(conv) else None


def convolve(
    x: torch.Tensor, first: torch.Tensor | None, shift: torch.Tensor | None, weight: torch.Tensor | None, bias: torch.Tensor | None,
    geometry: Sequence[int], first_activation: str, activation: str, tile: Sequence[int],
) -> torch.Tensor:
    """A depthwise convolution (first, shift; None: none), then a 1x1 one (weight, bias; None: none), each with its activation.

    x (N, CI, H, W), first (CI, 1, KH, KW), shift (CI), weight (CO, CI, 1, 1), bias (CO) -> (N, CI or CO, OH, OW).
    geometry: of the depthwise one. tile: without a 1x1 convolution [BLOCK], or planes, rows and columns of a program and its warps;
    else BM, BN, BK, warps, stages, TF32.
    """
    if not x.is_cuda:
        return convolve_in_torch(x, first, shift, weight, bias, geometry, first_activation, activation)
    with torch.cuda.device(x.device):  # Triton launches on the current one
        return launched(x.contiguous(), first, shift, weight, bias, geometry, first_activation, activation, tile)


def launched(
    x: torch.Tensor, first: torch.Tensor | None, shift: torch.Tensor | None, weight: torch.Tensor | None, bias: torch.Tensor | None,
    geometry: Sequence[int], first_activation: str, activation: str, tile: Sequence[int],
) -> torch.Tensor:
    """The same, by one kernel."""
    images, channels, height, width = x.shape
    rows, columns = convolved_size(x, geometry)
    numbers = (height, width, height * width, columns, rows * columns, *geometry[2:])
    window = {"KH": geometry[0], "KW": geometry[1]} if first is not None else {"KH": 0, "KW": 0}
    kernel: Any = depthwise_kernel if weight is None else pointwise_kernel
    if weight is None:
        out = x.new_empty((images, channels, rows, columns))
        if len(tile) > 1:
            planes, deep, wide, warps = tile
            kernel = depthwise_rows_kernel
            kernel[(-(-images * channels // planes), -(-rows // deep), -(-columns // wide))](
                x, first, shift, out, channels, images * channels, height, height * width, rows, rows * columns, *geometry[4:6], **window,
                W=width, OW=columns, ACTIVATION=CLAMPS.index(first_activation), BP=planes, ROWS=deep, BW=wide, num_warps=warps)
            return out
        kernel[(images * channels, -(-rows * columns // tile[0]))](
            x, first, shift, out, channels, *numbers, **window, ACTIVATION=CLAMPS.index(first_activation), BLOCK=tile[0], num_warps=4)
        return out
    bm, bn, bk, warps, stages, tf32 = tile
    out = x.new_empty((images, weight.shape[0], rows, columns))
    before, moved = (weight, weight) if first is None else (first, shift)  # the weights stand in for what is not read
    kernel[(-(-weight.shape[0] // bm), -(-rows * columns // bn), images)](
        x, before, moved, weight, bias, out, channels, weight.shape[0], *numbers, **window, FIRST=CLAMPS.index(first_activation),
        ACTIVATION=CLAMPS.index(activation), TF32=bool(tf32) and x.dtype == torch.float32,  # it may have been cast since
        BM=bm, BN=bn, BK=bk, num_warps=warps, num_stages=stages)
    return out


def convolve_in_torch(
    x: torch.Tensor, first: torch.Tensor | None, shift: torch.Tensor | None, weight: torch.Tensor | None, bias: torch.Tensor | None,
    geometry: Sequence[int], first_activation: str, activation: str,
) -> torch.Tensor:
    """The same in plain torch."""
    clamp: dict[str, Callable[..., torch.Tensor]] = {"none": lambda y: y, "relu": F.relu, "relu6": F.relu6}
    if first is not None:
        x = clamp[first_activation](F.conv2d(x, first, shift, *(list(geometry[i : i + 2]) for i in (2, 4, 6)), x.shape[1]))
    return x if weight is None else clamp[activation](F.conv2d(x, weight, bias))


def convolved_shape(
    x: torch.Tensor, first: torch.Tensor | None, shift: torch.Tensor | None, weight: torch.Tensor | None, bias: torch.Tensor | None,
    geometry: Sequence[int], first_activation: str, activation: str, tile: Sequence[int],
) -> torch.Tensor:
    """What the result looks like."""
    return x.new_empty((x.shape[0], x.shape[1] if weight is None else weight.shape[0], *convolved_size(x, geometry)))


torch.library.custom_op(
    "separable_convolutions::convolve", convolve, mutates_args=(),
    schema="(Tensor x, Tensor? first, Tensor? shift, Tensor? weight, Tensor? bias, int[] geometry, str first_activation, str activation, "
           "int[] tile) -> Tensor").register_fake(convolved_shape)


class Convolutions(torch.nn.Module):  # type: ignore[misc]
    """A depthwise convolution, a 1x1 one, or one after the other; other layouts, autocast and calls with gradients go to the library."""

    is_one_operator = True  # for tracing.CallTracer

    def __init__(self, stages: Sequence[Stage], tile: Sequence[int]) -> None:
        super().__init__()
        self.stages, self.tile = list(stages), list(tile)
        self.layers = torch.nn.ModuleList(stage.conv for stage in stages)
        depthwise, plain = (next((stage for stage in stages if stage.depthwise is kind), None) for kind in (True, False))
        self.geometry = depthwise.geometry() if depthwise is not None else [1, 1, 1, 1, 0, 0, 1, 1]
        self.activations = (depthwise.activation if depthwise else "none", plain.activation if plain else "none")
        for place, stage in enumerate(stages):
            if stage.conv.bias is None:
                self.register_buffer(f"zeros_{place}", stage.conv.weight.new_zeros(len(stage.conv.weight)), persistent=False)

    @property
    def compensated(self) -> bool:
        """Whether float32 products are sums of three TF32 ones."""
        return len(self.tile) == MATRIX_NUMBERS and not self.tile[-1] and self.layers[-1].weight.dtype == torch.float32

    def weights(self) -> list[torch.Tensor | None]:
        """The arguments first, shift, weight, bias of `convolve`: the layers' own tensors, zeros for a bias that is not there."""
        parts: list[torch.Tensor | None] = [None] * 4
        for place, stage in enumerate(self.stages):
            start = 0 if stage.depthwise else 2
            bias = getattr(self, f"zeros_{place}") if stage.conv.bias is None else stage.conv.bias
            parts[start : start + 2] = stage.conv.weight, bias
        return parts

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if left_to_library(x, self.layers[0].weight, self):
            for stage in self.stages:
                x = stage.library(x)
            return x
        compute: Any = torch.ops.separable_convolutions.convolve if is_watched(x) else convolve
        return compute(x, *self.weights(), self.geometry, *self.activations, self.tile)


def chains_of(graph: torch.fx.GraphModule, seen: dict[torch.nn.Module, torch.Tensor]) -> list[list[Place]]:
    """Convolutions that the kernels can compute: a depthwise one and the 1x1 that alone uses its result together.

    seen: the input that each module had in this call, of those that were called once.
    """
    modules, chains, taken = dict(graph.named_modules()), [], set()
    found: dict[torch.fx.Node, Place] = {}
    for node in graph.graph.nodes:
        module = modules.get(str(node.target)) if node.op == "call_module" else None
        if module not in seen or len(node.args) != 1 or node.kwargs:
            continue
        activation, last = activation_after(node, modules)
        stage = stage_of(module, activation)
        if stage is not None:
            found[node] = (stage, node, last)
    for node, one in found.items():
        if node in taken:
            continue
        chain = [one]
        following = next(iter(one[2].users)) if len(one[2].users) == 1 else None
        if one[0].depthwise and following in found and not found[following][0].depthwise:
            chain.append(found[following])
            taken.add(following)
        chains.append(chain)
    return chains


def tiles_of(stages: Sequence[Stage], x: torch.Tensor, tf32: bool) -> list[list[int]]:
    """Tiles worth trying on x, the input of the first stage."""
    last = stages[-1]
    if last.depthwise:
        rows, columns = convolved_size(x, last.geometry())
        enough = max(64, 1 << (rows * columns - 1).bit_length())
        blocks = [[block] for block in sorted({min(block, enough) for block in BLOCKS})]
        height, width, *steps = last.geometry()
        if steps[:2] + steps[4:] != [1, 1, 1, 1] or height * width > ROWS_WINDOW:
            return blocks
        wide = min(256, max(16, 1 << (columns - 1).bit_length()))
        deep = -(-rows // -(-rows // ROWS))
        return [[max(1, numbers // wide), deep, wide, 4] for numbers in ROWS_NUMBERS] + blocks[:1]
    wide = min(256, max(64, 1 << (last.conv.out_channels - 1).bit_length()))
    if len(stages) == 2:  # few tiles over the channels: each computes the depthwise part again
        fitting = [(wide, places, 16, 8 if wide * places > 4096 else 4, 1) for places in PLACES]
    else:
        fitting = [tile for tile in TILES if wide // 2 <= tile[0] <= wide]
    return [[*tile, int(tf32)] for tile in fitting]


def best_of(stages: Sequence[Stage], x: torch.Tensor, limit_s: float) -> tuple[float, Convolutions] | None:
    """(seconds, module) of the fastest that takes less than limit_s and errs by no more than the library; None where there is none."""
    as_exact = exactness(stages, x)
    narrow = not stages[-1].depthwise and convolutions_are_tf32(float32_flags()) and stages[-1].conv.weight.dtype == torch.float32
    for tf32 in (True, False) if narrow else (False,):
        found = []
        for tile in tiles_of(stages, x, tf32):
            module = Convolutions(stages, tile)
            try:
                if not as_exact(module):
                    break  # tiles of one precision add the same products: none of them is compiled in vain
                taken_s = seconds(lambda: module(x))  # noqa: B023 called at once
            except (RuntimeError, triton.errors.TritonError):  # no room for this tile on the device
                continue
            if taken_s < limit_s:
                found.append((taken_s, module))
        if found:
            return min(found, key=lambda item: item[0])
    return None


def replacements(chain: Sequence[Place], x: torch.Tensor, library_s: Sequence[float]) -> list[tuple[int, int, Convolutions]]:
    """(first stage, one behind the last, what takes their place): the faster of both stages in one kernel and each for itself.

    library_s: see library_seconds.
    """
    stages = [stage for stage, _node, _last in chain]
    key = chain_key(stages, x)
    kept = CONVOLUTION_CHOICES.kept().get(key)
    again = kept_replacements(stages, x, kept) if kept is not None else None
    if again is not None:
        return again
    chosen = fastest_replacements(stages, x, library_s)
    CONVOLUTION_CHOICES.keep(key, [(name, module.tile) for begin, end, module in chosen
                                   for name, span in SPANS.items() if span == (begin, end)])
    return chosen


def chain_key(stages: Sequence[Stage], x: torch.Tensor) -> str:
    """What a choice depends on: device, versions, shapes, what the library may do."""
    layers = [[stage.conv.in_channels, stage.conv.out_channels, *stage.geometry(), stage.activation] for stage in stages]
    return "|".join([machine_of(x, triton), str(x.dtype), str(list(x.shape)), str(layers), str(convolutions_are_tf32(float32_flags()))])


def kept_replacements(
    stages: Sequence[Stage], x: torch.Tensor, kept: Sequence[tuple[str, Sequence[int]]],
) -> list[tuple[int, int, Convolutions]] | None:
    """What an earlier process chose, as far as it is as exact on these numbers; None where a kernel is not: all is measured anew."""
    inputs, found = [x], []
    for stage in stages[:-1]:
        inputs.append(stage.library(inputs[-1]))
    for name, tile in kept:
        begin, end = SPANS[name]
        if end > len(stages) or stages[end - 1].depthwise is (len(tile) == MATRIX_NUMBERS):
            return None
        module = Convolutions(stages[begin:end], tile)
        try:
            if not exactness(module.stages, inputs[begin])(module):
                return None
        except (RuntimeError, triton.errors.TritonError):
            return None
        found.append((begin, end, module))
    return found


def fastest_replacements(stages: Sequence[Stage], x: torch.Tensor, library_s: Sequence[float]) -> list[tuple[int, int, Convolutions]]:
    """The same by timing every way."""
    both = best_of(stages, x, sum(library_s) / FASTER) if len(stages) > 1 else None
    apart_s, single = 0.0, []
    for index, (stage, limit_s) in enumerate(zip(stages, library_s, strict=True)):
        found = best_of([stage], x, limit_s / FASTER)
        single += [(index, index + 1, found[1])] if found is not None else []
        apart_s += limit_s if found is None else found[0]
        x = stage.library(x)
    return single if both is None or apart_s < both[0] else [(0, len(stages), both[1])]


def replace_chains(graph: torch.fx.GraphModule, seen: dict[torch.nn.Module, torch.Tensor]) -> int:
    """Put kernels in the place of convolutions where they are faster. Returns how many."""
    return replace_slowest_first(graph, chains_of(graph, seen), seen, library_seconds, replacements)


def separable_convolutions(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.nn.Module:
    """A copy of the model (weights shared) with its depthwise and 1x1 convolutions in Triton kernels where that pays."""
    if triton is None or not torch.cuda.is_available() or torch.cuda.get_device_capability() < (8, 0):
        raise NotImplementedError("not applicable: needs Triton and a GPU with TF32 tensor cores (compute capability 8.0)")
    twin, seen = traced_convolutions(model, args, kwargs, lambda module: stage_of(module, "none") is not None)
    if not replace_chains(twin, seen):
        raise NotImplementedError("not applicable: no depthwise or 1x1 convolution is faster and as exact in a kernel of its own")
    return twin

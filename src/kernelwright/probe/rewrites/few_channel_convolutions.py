"""Convolutions of few input channels, with bias, activation and max pooling, in one Triton kernel each.

The first layer of most image networks. Libraries compute it in float32, or make little use of the tensor cores, and read and write the
result once for the bias, once for the activation and once for the pooling. Each place is measured on this call's inputs, and stays as it
is where the kernel is not faster and as exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.fx
import torch.nn.functional as F

from .choices import Choices, machine_of
from .conv_places import (
    CLAMPS,
    FASTER,
    LARGEST_IMAGE,
    Place,
    Stage,
    activation_after,
    called_module,
    convolved_size,
    exactness,
    is_plain,
    is_watched,
    left_to_library,
    library_seconds,
    replace_slowest_first,
    sole_reader,
    traced_convolutions,
)
from .few_channel_kernels import few_channel_kernel, triton
from .float32_flags import convolutions_are_tf32, float32_flags
from .measuring import seconds

MOST_CHANNELS = 16
"""Of the input. With 64 the library's tensor cores take a seventh of this kernel's time (H100, 5 x 5, TF32)."""
WIDE = ((32, 512), (16, 256), (32, 256), (16, 128))
NARROW = ((8, 512), (8, 256), (8, 128))
"""Channels x places of a program, for more channels of the result than ENOUGH and for fewer: the sums are 8 to 128 a thread."""
ENOUGH = 16
MOST_TILES = 2
"""Tried at one place: each is compiled in 2 to 3 s. Of three layers, one would be 10% faster with a third (H100)."""
PROGRAMS = 264
"""Two for each multiprocessor of an H100 or H200: larger tiles, which make fewer, leave some without work."""
MOST_SUMMED = 4096
"""Numbers that one number of the result is summed of; the sums go one after the other."""
MOST_UNROLLED = 32
"""Columns of the window, times the members of a pooling's: the kernel holds so many steps. Larger ones are compiled in 5 s to minutes."""
FEW_CHANNEL_CHOICES = Choices("few_channel_convolutions", ("kernel",), (3,))


def few_channel_stage(conv: Any, activation: str, pool: int = 1) -> Stage | None:
    """A convolution that the kernel can compute; None for any other."""
    few = type(conv) is torch.nn.Conv2d and conv.groups == 1 and conv.in_channels <= MOST_CHANNELS
    fits = few and conv.weight[0].numel() <= MOST_SUMMED and conv.kernel_size[1] <= MOST_UNROLLED
    return Stage(conv, activation, pool) if fits and is_plain(conv) else None


def pooling_after(node: torch.fx.Node, modules: dict[str, Any]) -> tuple[int, torch.fx.Node]:
    """The window of a max pooling that alone uses a node's result, where its windows touch and do not overlap, and the node that it ends
    with; (1, node) for any other."""
    user = sole_reader(node)
    if user is None:
        return 1, node
    module = called_module(user, modules)
    if type(module) is torch.nn.MaxPool2d:
        given = [module.kernel_size, module.stride, module.padding, module.dilation, module.ceil_mode, module.return_indices]
    elif user.target is F.max_pool2d:
        names = ("input", "kernel_size", "stride", "padding", "dilation", "ceil_mode", "return_indices")
        values = {**dict(zip(names, (None, None, None, 0, 1, False, False), strict=True)), **dict(zip(names, user.args, strict=False)),
                  **user.kwargs}
        given = [values[name] for name in names[1:]]
    else:
        return 1, node
    window, stride, padding, dilation = (_pair(value) for value in given[:4])
    plain = window[0] == window[1] and stride in (window, ()) and padding == (0, 0) and dilation == (1, 1) and not any(given[4:])
    return (window[0], user) if plain and isinstance(window[0], int) and window[0] > 1 else (1, node)


def _pair(value: Any) -> tuple[Any, ...]:
    """A size as torch takes it, for rows and columns; () for none."""
    given = () if value is None else tuple(value) if isinstance(value, (tuple, list)) else (value,)
    return 2 * given if len(given) == 1 else given


def pooled_size(x: torch.Tensor, geometry: Sequence[int], pool: int) -> tuple[int, int]:
    """Rows and columns of the result."""
    rows, columns = convolved_size(x, geometry)
    return rows // pool, columns // pool


def few_channels(
    x: torch.Tensor, taps: torch.Tensor, bias: torch.Tensor, geometry: Sequence[int], activation: str, pool: int, tile: Sequence[int],
) -> torch.Tensor:
    """A convolution, its activation, and a max pooling of `pool` x `pool` (1: none).

    x (N, CI, H, W), taps (CI, KH, KW, CO or more), bias (CO) -> (N, CO, OH, OW). tile: channels, images and places of a program.
    """
    if not x.is_cuda:
        return few_channels_in_torch(x, taps, bias, geometry, activation, pool)
    with torch.cuda.device(x.device):  # Triton launches on the current one
        return few_channels_launched(x.contiguous(), taps, bias, geometry, activation, pool, tile)


def few_channels_launched(
    x: torch.Tensor, taps: torch.Tensor, bias: torch.Tensor, geometry: Sequence[int], activation: str, pool: int, tile: Sequence[int],
) -> torch.Tensor:
    """The same, by one kernel."""
    images, channels, height, width = x.shape
    rows, columns = pooled_size(x, geometry, pool)
    kernel: Any = few_channel_kernel
    out = x.new_empty((images, len(bias), rows, columns))
    bm, bi, bp = tile
    parts = -(-rows * columns // bp)
    kernel[(-(-images // bi) * parts, -(-len(bias) // bm))](
        x, taps, bias, out, images, len(bias), taps.shape[3], height, width, height * width, columns, rows * columns, parts, *geometry[2:],
        CI=channels, KH=geometry[0], KW=geometry[1], PADDED=any(geometry[4:6]), ACTIVATION=CLAMPS.index(activation), POOL=pool,
        BM=bm, BI=bi, BP=bp, num_warps=4)
    return out


def few_channels_in_torch(
    x: torch.Tensor, taps: torch.Tensor, bias: torch.Tensor, geometry: Sequence[int], activation: str, pool: int,
) -> torch.Tensor:
    """The same in plain torch."""
    weight = taps[..., : len(bias)].permute(3, 0, 1, 2)
    y = F.conv2d(x, weight, bias, *(list(geometry[i : i + 2]) for i in (2, 4, 6)))
    y = y if activation == "none" else y.relu() if activation == "relu" else F.relu6(y)
    return y if pool == 1 else F.max_pool2d(y, pool)


def few_channels_shape(
    x: torch.Tensor, taps: torch.Tensor, bias: torch.Tensor, geometry: Sequence[int], activation: str, pool: int, tile: Sequence[int],
) -> torch.Tensor:
    """What the result looks like."""
    return x.new_empty((x.shape[0], bias.shape[0], *pooled_size(x, geometry, pool)))


torch.library.custom_op(
    "few_channel_convolutions::convolve", few_channels, mutates_args=(),
    schema="(Tensor x, Tensor taps, Tensor bias, int[] geometry, str activation, int pool, int[] tile) -> Tensor",
).register_fake(few_channels_shape)


class FewChannelConvolution(torch.nn.Module):  # type: ignore[misc]
    """A convolution with its activation and pooling; other layouts, autocast and calls with gradients go to the library."""

    is_one_operator = True  # for tracing.CallTracer

    def __init__(self, stage: Stage, tile: Sequence[int]) -> None:
        super().__init__()
        self.stage, self.tile, self.geometry, self.layer = stage, list(tile), stage.geometry(), stage.conv
        weight, bias = stage.conv.weight.detach(), stage.conv.bias
        taps = F.pad(weight.permute(1, 2, 3, 0), (0, -len(weight) % tile[0]))  # a window's weights for all channels lie together
        self.register_buffer("taps", taps.contiguous(), persistent=False)
        self.register_buffer("shift", weight.new_zeros(len(weight)) if bias is None else bias.detach(), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if left_to_library(x, self.layer.weight, self):
            return self.stage.library(x)
        compute: Any = torch.ops.few_channel_convolutions.convolve if is_watched(x) else few_channels
        return compute(x, self.taps, self.shift, self.geometry, self.stage.activation, self.stage.pool, self.tile)


def few_channel_places(graph: torch.fx.GraphModule, seen: dict[torch.nn.Module, torch.Tensor]) -> list[Place]:
    """Convolutions that the kernel can compute, with what it takes over after them. seen: the input that each had in this call."""
    modules, found = dict(graph.named_modules()), []
    for node in graph.graph.nodes:
        module = modules.get(str(node.target)) if node.op == "call_module" else None
        if module not in seen or len(node.args) != 1 or node.kwargs:
            continue
        activation, activated = activation_after(node, modules)
        pool, last = pooling_after(activated, modules)
        if pool > 1 and isinstance(module, torch.nn.Conv2d) and pool**2 * module.kernel_size[1] > MOST_UNROLLED:
            pool, last = 1, activated
        stage = few_channel_stage(module, activation, pool)
        if stage is not None:
            rows, columns = pooled_size(seen[stage.conv], stage.geometry(), pool)
            found += [(stage, node, last)] if 0 < stage.conv.out_channels * rows * columns < LARGEST_IMAGE else []
    return found


def few_channel_tiles(stage: Stage, x: torch.Tensor) -> list[list[int]]:
    """Tiles worth trying on x: those that give every multiprocessor work, or the smallest."""
    rows, columns = pooled_size(x, stage.geometry(), stage.pool)
    enough = 1 << (rows * columns - 1).bit_length()
    found = []
    for channels, places in WIDE if stage.conv.out_channels > ENOUGH else NARROW:
        part = min(places, enough)
        programs = -(-len(x) // (places // part)) * -(-rows * columns // part) * -(-stage.conv.out_channels // channels)
        found.append((programs, [channels, places // part, part]))
    full = [tile for programs, tile in found if programs >= PROGRAMS]
    return full[:MOST_TILES] if full else [max(found, key=lambda one: one[0])[1]]


def fastest_tile(stage: Stage, x: torch.Tensor, limit_s: float) -> list[int] | None:
    """The tile of the fastest kernel that takes less than limit_s and errs by no more than the library; None where there is none."""
    as_exact, found = exactness([stage], x), []
    for tile in few_channel_tiles(stage, x):
        module = FewChannelConvolution(stage, tile)
        try:
            if not as_exact(module):
                return None  # every tile adds the same products in the same order
            taken_s = seconds(lambda: module(x))  # noqa: B023 called at once
        except (RuntimeError, triton.errors.TritonError):  # no room for this tile on the device
            continue
        if taken_s < limit_s:
            found.append((taken_s, tile))
    return min(found)[1] if found else None


def few_channel_key(stage: Stage, x: torch.Tensor) -> str:
    """What a choice depends on: device, versions, shapes, what the library may do."""
    layer = [stage.conv.in_channels, stage.conv.out_channels, *stage.geometry(), stage.activation, stage.pool]
    return "|".join([machine_of(x, triton), str(x.dtype), str(list(x.shape)), str(layer), str(convolutions_are_tf32(float32_flags()))])


def still_exact(stage: Stage, x: torch.Tensor, tile: Sequence[int]) -> bool:
    """Whether a tile that was chosen before runs, and errs by no more than the library on these numbers."""
    try:
        return exactness([stage], x)(FewChannelConvolution(stage, tile))
    except (RuntimeError, triton.errors.TritonError):
        return False


def chosen_tile(stage: Stage, x: torch.Tensor, library_s: float) -> list[int] | None:
    """What an earlier process chose, where it is as exact on these numbers; else by timing. None: the library stays."""
    key = few_channel_key(stage, x)
    kept = FEW_CHANNEL_CHOICES.kept().get(key)
    if kept == []:
        return None
    if kept is not None and kept[0][1] in few_channel_tiles(stage, x) and still_exact(stage, x, kept[0][1]):
        return kept[0][1]
    tile = fastest_tile(stage, x, library_s / FASTER)
    FEW_CHANNEL_CHOICES.keep(key, [] if tile is None else [("kernel", tile)])
    return tile


def few_channel_replacements(
    chain: Sequence[Place], x: torch.Tensor, library_s: Sequence[float],
) -> list[tuple[int, int, FewChannelConvolution]]:
    """What takes the place of a convolution: one kernel, or nothing."""
    stage = chain[0][0]
    tile = chosen_tile(stage, x, library_s[0])
    return [] if tile is None else [(0, 1, FewChannelConvolution(stage, tile))]


def replace_few_channels(graph: torch.fx.GraphModule, seen: dict[torch.nn.Module, torch.Tensor]) -> int:
    """Put the kernel in the place of convolutions where it is faster. Returns how many."""
    chains = [[place] for place in few_channel_places(graph, seen)]
    return replace_slowest_first(graph, chains, seen, library_seconds, few_channel_replacements)


def few_channel_convolutions(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.nn.Module:
    """A copy of the model (weights shared) with its convolutions of few input channels in Triton kernels where that pays."""
    if triton is None or not torch.cuda.is_available():
        raise NotImplementedError("not applicable: needs Triton and a GPU")
    twin, seen = traced_convolutions(model, args, kwargs, lambda module: few_channel_stage(module, "none") is not None)
    if not replace_few_channels(twin, seen):
        raise NotImplementedError("not applicable: no convolution of few input channels is faster and as exact in a kernel of its own")
    return twin

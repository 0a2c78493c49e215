"""What commutes with a pooling is done on its smaller side: bias and ReLU behind a max pooling, a 1x1 convolution behind an average."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import torch
import torch.fx
import torch.nn.functional as F

from .graphs import arguments, call_function, calls, replace, tensor_of, weight_of, writes

CONVOLVING = {torch.conv1d: 1, torch.conv2d: 2, torch.conv3d: 3}
"""Each with the dimensions that it slides over; so below."""
CONVOLVED = ("input", "weight", "bias", "stride", "padding", "dilation", "groups")
MAX_POOLS = {F.max_pool1d: 1, F.max_pool2d: 2, F.max_pool3d: 3, torch.max_pool1d: 1, torch.max_pool2d: 2, torch.max_pool3d: 3,
             F.adaptive_max_pool1d: 1, F.adaptive_max_pool2d: 2, F.adaptive_max_pool3d: 3}
AVERAGES = {F.avg_pool1d: 1, F.avg_pool2d: 2, F.avg_pool3d: 3}
ADAPTIVE_AVERAGES = {F.adaptive_avg_pool1d: 1, F.adaptive_avg_pool2d: 2, F.adaptive_avg_pool3d: 3}
FRESH = (*CONVOLVING, F.batch_norm, operator.add, torch.add, torch.cat)
"""Their results share memory with nothing: what writes in place to one that has no other reader can be moved."""


def fuse_pooling(graph: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> int:
    """Moves what is monotone behind the max poolings and the averages before 1x1 convolutions, and makes wide windows from narrow ones.
    Max poolings keep every value, NaN too; averages differ by rounding. Returns how many poolings changed."""
    changed = chain_windows(graph)
    for node in list(graph.graph.nodes):
        if calls(node, *MAX_POOLS):
            changed += monotone_behind(graph, node, example_inputs)
        else:
            changed += average_before(graph, node)
    return changed


def monotone_behind(graph: torch.fx.GraphModule, pool: torch.fx.Node, example_inputs: Sequence[Any]) -> int:
    """Moves what stands before a max pooling that shrinks its input behind it, as far back as the bias of a convolution. Rounding never
    turns two values around, so the largest stays the largest. 1 where something moved."""
    x, y = tensor_of(pool.args[0] if pool.args else None), tensor_of(pool)
    dilation = arguments(pool, "input", "kernel_size", "stride", "padding", "dilation")[4]
    if x is None or y is None or y.numel() >= x.numel() or not all_are(dilation or 1, 1):
        return 0  # a dilated window may lie in the padding alone: -inf, which a ReLU would change
    dims, source = MAX_POOLS[pool.target], pool.args[0]
    moved: list[tuple[torch.fx.Node, Any]] = []
    while len(source.users) == 1 and (call := monotone_call(source, dims, graph, example_inputs)) is not None:
        moved.append((source, call))
        source = source.args[0]
    while moved and writes(moved[-1][0]) and not (calls(source, *FRESH) and len(source.users) == 1):
        source = moved.pop()[0]
    bias = movable_bias(source, dims, graph, example_inputs)
    old = [pool, *(node for node, _ in moved), *([source] if bias is not None else [])]
    if len(old) == 1 or not quiet(graph, old):
        return 0
    if bias is not None:
        image, weight, _bias, *given = arguments(source, *CONVOLVED)
        settings = {name: value for name, value in zip(CONVOLVED[3:], given, strict=True) if value is not None}
        source = call_function(graph, source, source.target, image, weight, None, **settings)
    new = call_function(graph, pool, pool.target, source, *pool.args[1:], **pool.kwargs)
    if bias is not None:
        new = call_function(graph, pool, torch.add, new, call_function(graph, pool, torch.reshape, bias, (-1, *[1] * dims)))
    for _node, (target, rest) in reversed(moved):
        new = call_function(graph, pool, target, new, *rest)
    pool.replace_all_uses_with(new)
    for node in old:
        graph.graph.erase_node(node)
    return 1


def monotone_call(
    node: torch.fx.Node, dims: int, graph: torch.fx.GraphModule, example_inputs: Sequence[Any],
) -> tuple[Any, tuple[Any, ...]] | None:
    """(function, its arguments after the first) that compute the same and write to nothing, if the result never falls where the input
    rises; None for any other call."""
    if not isinstance(node.args[0] if node.args else None, torch.fx.Node):
        return None
    if calls(node, F.relu, torch.relu, torch.relu_, "relu", "relu_"):
        return torch.relu, ()
    if calls(node, F.relu6):
        return F.relu6, ()
    if calls(node, F.leaky_relu):
        slope = 0.01 if (given := arguments(node, "input", "negative_slope")[1]) is None else given
        return (F.leaky_relu, (slope,)) if isinstance(slope, (int, float)) and 0 < slope < math.inf else None
    if calls(node, F.hardtanh):
        low, high = arguments(node, "input", "min_val", "max_val")[1:]
        return F.hardtanh, (-1.0 if low is None else low, 1.0 if high is None else high)
    if calls(node, torch.clamp, torch.clamp_min, "clamp", "clamp_min"):
        ends = arguments(node, "input", "min", "max")[1:]
        return (torch.clamp, tuple(ends)) if all(end is None or isinstance(end, (int, float)) for end in ends) else None
    if calls(node, F.batch_norm):
        look = tensor_of(node)
        mean, variance, gamma, beta, training, momentum, eps = arguments(
            node, "input", "running_mean", "running_var", "weight", "bias", "training", "momentum", "eps")[1:]
        known = [weight_of(item, graph, example_inputs) for item in (mean, variance, gamma, beta) if item is not None]
        finite = all(value is not None and bool(value.isfinite().all()) for value in known)
        scale = weight_of(gamma, graph, example_inputs)
        positive = scale is None or bool((scale > 0).all())
        if training or mean is None or variance is None or look is None or look.dim() != dims + 2 or not finite or not positive:
            return None
        return F.batch_norm, (mean, variance, gamma, beta, False, 0.1 if momentum is None else momentum, 1e-5 if eps is None else eps)
    return None


def movable_bias(source: torch.fx.Node, dims: int, graph: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> torch.fx.Node | None:
    """The bias of a convolution that only the pooling reads, where adding it is a pass of its own."""
    if not calls(source, *CONVOLVING) or CONVOLVING[source.target] != dims or len(source.users) != 1:
        return None
    bias: Any = arguments(source, *CONVOLVED)[2]
    value, look = weight_of(bias, graph, example_inputs), tensor_of(source)
    if value is None or look is None or value.dtype != look.dtype or not bias_is_apart(look) or not bool(value.isfinite().all()):
        return None
    return bias


def bias_is_apart(look: torch.Tensor) -> bool:
    """Whether a convolution with this result leaves the bias to another kernel: on a GPU. A CPU's adds it for nothing, before it rounds."""
    return str(look.device.type) != "cpu"


def average_before(graph: torch.fx.GraphModule, pool: torch.fx.Node) -> int:
    """Averages the input of a 1x1 convolution in the place of its result, where no more numbers are then written than the result held.
    1 where it did."""
    conv: Any = pool.args[0] if pool.args else None
    if not calls(conv, *CONVOLVING) or len(conv.users) != 1 or not conv.args:
        return 0
    source, weight, _bias, stride, padding = arguments(conv, *CONVOLVED)[:5]
    call = average_call(pool, CONVOLVING[conv.target])
    x, kernel, y, pooled = tensor_of(source), tensor_of(weight), tensor_of(conv), tensor_of(pool)
    if call is None or x is None or kernel is None or y is None or pooled is None or not x.dtype == kernel.dtype == y.dtype == pooled.dtype:
        return 0  # under autocast dtypes differ
    plain = all_are(tuple(kernel.shape[2:]), 1) and all_are(stride or 1, 1) and all_are(padding or 0, 0)
    if not plain or not quiet(graph, [pool, conv]):
        return 0
    target, rest, squeezed = call
    small = call_function(graph, pool, target, source, *rest)
    look = tensor_of(small)
    if look is None or look.numel() > y.numel() or look.numel() >= x.numel():
        graph.graph.erase_node(small)
        return 0
    new = call_function(graph, pool, conv.target, small, *conv.args[1:], **conv.kwargs)
    replace(pool, call_function(graph, pool, torch.squeeze, new, squeezed) if squeezed else new)
    return 1


def average_call(pool: torch.fx.Node, dims: int) -> tuple[Any, tuple[Any, ...], tuple[int, ...]] | None:
    """(function, its arguments after the first, dimensions to squeeze afterwards) of an average over the last `dims` dimensions in which
    the weights of each window sum to one; None for any other call."""
    if calls(pool, *ADAPTIVE_AVERAGES) and ADAPTIVE_AVERAGES[pool.target] == dims:
        size = arguments(pool, "input", "output_size")[1]
        return pool.target, (size,), ()
    if calls(pool, *AVERAGES) and AVERAGES[pool.target] == dims:
        _input, size, stride, padding, ceil_mode, padding_counts, divisor = arguments(
            pool, "input", "kernel_size", "stride", "padding", "ceil_mode", "count_include_pad", "divisor_override")
        padding = 0 if padding is None else padding
        if ceil_mode or divisor is not None or not (all_are(padding, 0) or padding_counts is False):
            return None
        return pool.target, (size, size if stride is None else stride, padding, False, False), ()
    if calls(pool, torch.mean, "mean"):
        _input, over, keeps, dtype = arguments(pool, "input", "dim", "keepdim", "dtype")
        look = tensor_of(pool.args[0])
        if over is None or look is None or dtype is not None:
            return None
        places = tuple(sorted(dim % look.dim() for dim in ((over,) if isinstance(over, int) else over)))
        return (torch.mean, (places, True), () if keeps else places) if places and places[0] >= look.dim() - dims else None
    return None


def chain_windows(graph: torch.fx.GraphModule) -> int:
    """Max poolings of one input, stride 1 (5 x 5, 9 x 9, 13 x 13, say): each wider window is made from the next narrower one's results."""
    groups: dict[Any, list[tuple[int, torch.fx.Node]]] = {}
    for node in graph.graph.nodes:
        if calls(node, F.max_pool2d, torch.max_pool2d) and node.args and tensor_of(node) is not None:
            source, size, stride, padding, dilation, ceil_mode = arguments(
                node, "input", "kernel_size", "stride", "padding", "dilation", "ceil_mode")
            width = size if isinstance(size, int) else size[0]
            same = all_are(size, width) and all_are(stride or size, 1) and all_are(padding or 0, width // 2)
            if same and width % 2 and width > 1 and all_are(1 if dilation is None else dilation, 1) and not ceil_mode:
                groups.setdefault(source, []).append((width, node))
    chained = 0
    for found in groups.values():
        pools = [node for _, node in found]
        twice = len({width for width, _ in found}) < len(found)  # two results of one width may be written to apart
        if twice or len(found) < 2 or not quiet(graph, pools):
            continue
        start, value, before = pools[0], pools[0].args[0], 1
        for width, node in sorted(found, key=lambda item: item[0]):
            step = width - before + 1
            value = call_function(graph, start, F.max_pool2d, value, step, 1, step // 2)
            before = width
            node.replace_all_uses_with(value)
        for node in pools:
            graph.graph.erase_node(node)
        chained += len(pools) - 1
    return chained


def quiet(graph: torch.fx.GraphModule, nodes: Sequence[torch.fx.Node]) -> bool:
    """Whether nothing but these nodes themselves writes in place between the first and the last of them."""
    order = list(graph.graph.nodes)
    places = [order.index(node) for node in nodes]
    return not any(writes(node) for node in order[min(places) : max(places)] if node not in nodes)


def all_are(value: Any, number: int) -> bool:
    """Whether a number, or each of several, is this one."""
    return all(item == number for item in ((value,) if isinstance(value, (int, float)) else value))

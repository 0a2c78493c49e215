"""[Residual addition,] layer, RMS, group or instance norm [and activation] in one or two Triton launches of our own.

Many short rows: one launch, rows in registers. Few long rows, of which the library gives each to one block: two launches, statistics of
parts and then the rest, so that all multiprocessors work. A place is changed where that measures faster than the library's operators and
than what Inductor makes of them alone; what Inductor would have fused in beyond them is not measured.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch._inductor.compile_fx
import torch.fx
import torch.nn.functional as F

from .graphs import arguments, call_function, calls, median_us, random_like, tensor_of, writes
from .norm_kernels import NORM_ACTIVATIONS, norm_from_parts_kernel, norm_parts_kernel, norm_rows_kernel, triton
from .norm_patterns import NORM_ADDS, Norm, library_norm, rms_by_hand

NORM_TYPES = (torch.float32, torch.bfloat16, torch.float16)
WIDEST_ROW = 16384
"""Numbers of a row that a program holds in registers: 32 a thread."""
LONGEST_ROW = 2**30
"""Numbers of a row, which kernels count in 32 bits, to the end of its last part."""
SPLIT_FROM = 4096
"""Numbers of a row from which parts of it are tried; below that a launch more costs more than it brings."""
SPLIT_ROWS = 2048
"""Rows below which that is tried where they fit into registers: more fill the device anyway."""
MOST_PARTS = 1024
"""Parts of a row: each program of the second launch reads what is known of all of them."""
PARTINGS = ((2048, 4, 1), (4096, 8, 1), (4096, 8, 4))
"""Numbers of a block, warps, and blocks a program at least."""
CLEARLY = 0.97
"""Part of the other's time that must not be exceeded."""
ON_DEVICE = "cuda"
"""Where the kernels run; elsewhere the operator is torch's own arithmetic, and no place is taken."""


def norm(
    x: torch.Tensor, residual: torch.Tensor | None, weight: torch.Tensor | None, bias: torch.Tensor | None, geometry: Sequence[int],
    rms: bool, eps: float, activation: str, dtype: torch.dtype, way: Sequence[int],
) -> torch.Tensor:
    """Rows of x [+ residual] normalised: float16, bfloat16 or float32 in, dtype out, contiguous.

    geometry: numbers of a row, of which so many belong to one weight, and rows after which the weights come round again.
    way: rows and columns of a program and its warps; or numbers of a block, its warps, blocks a program and parts of a row.
    """
    return normed(x, residual, weight, bias, geometry, rms, eps, activation, dtype, way, False)[0]


def add_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, geometry: Sequence[int],
    rms: bool, eps: float, activation: str, dtype: torch.dtype, way: Sequence[int],
) -> tuple[torch.Tensor, torch.Tensor]:
    """The same, and x + residual."""
    return normed(x, residual, weight, bias, geometry, rms, eps, activation, dtype, way, True)


def normed(x: torch.Tensor, *rest: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Both, by the kernels on a GPU (of which the sum may be x itself where nobody asks for it), else by torch."""
    if not x.is_cuda:
        return norm_in_torch(x, *rest[:-2])
    with torch.cuda.device(x.device):  # Triton launches on the current one
        return norm_launched(x, *rest)


def norm_launched(
    x: torch.Tensor, residual: torch.Tensor | None, weight: torch.Tensor | None, bias: torch.Tensor | None, geometry: Sequence[int],
    rms: bool, eps: float, activation: str, dtype: torch.dtype, way: Sequence[int], keep: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Both by the kernels."""
    x, residual, weight, bias = (None if item is None else item.contiguous() for item in (x, residual, weight, bias))
    out = x.new_empty(x.shape, dtype=dtype)
    numbers, covered, groups = geometry
    rows = out.numel() // numbers
    split, adds = len(way) == 4, residual is not None
    total = torch.empty_like(x) if adds and (keep or split) else x
    flags = {"WEIGHT": weight is not None, "BIAS": bias is not None, "RMS": rms, "ACTIVATION": NORM_ACTIVATIONS.index(activation)}
    added, factor, shift = (x if item is None else item for item in (residual, weight, bias))  # x stands in for what is not read
    kernel: Any = norm_rows_kernel
    if not split:
        height, block, warps = way
        kernel[(-(-rows // height),)](x, added, total, factor, shift, out, rows, numbers, groups, eps, S=covered, ADD=adds,
                                      KEEP=adds and keep, **flags, BR=height, BLOCK=block, num_warps=warps)
        return out, total
    block, warps, chunks, count = way
    parts = out.new_empty((3, rows, count), dtype=torch.float32)
    kernel = norm_parts_kernel
    kernel[(rows * count,)](x, added, total, parts, rows, numbers, count, chunks, ADD=adds, RMS=rms, BLOCK=block, num_warps=warps)
    kernel = norm_from_parts_kernel
    kernel[(rows * count,)](total, parts, factor, shift, out, rows, numbers, groups, count, chunks, eps, S=covered, **flags,
                            BP=1 << (count - 1).bit_length(), BLOCK=block, num_warps=warps)
    return out, total


def norm_in_torch(
    x: torch.Tensor, residual: torch.Tensor | None, weight: torch.Tensor | None, bias: torch.Tensor | None, geometry: Sequence[int],
    rms: bool, eps: float, activation: str, dtype: torch.dtype,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Both in plain torch; float64 stays float64."""
    total = x.clone() if residual is None else x + residual
    numbers, covered, groups = geometry
    rows = total.reshape(-1, numbers).to(torch.promote_types(x.dtype, torch.float32))
    if not rms:
        rows = rows - rows.mean(1, keepdim=True)
        rows = rows - rows.mean(1, keepdim=True)
    rows = (rows * torch.rsqrt(rows.square().mean(1, keepdim=True) + eps)).view(-1, groups, numbers // covered, covered)
    rows = rows if weight is None else rows * weight.reshape(groups, -1, 1).to(rows.dtype)
    rows = rows if bias is None else rows + bias.reshape(groups, -1, 1).to(rows.dtype)
    act: dict[str, Callable[..., torch.Tensor]] = {"relu": F.relu, "silu": F.silu, "gelu": F.gelu}
    rows = F.gelu(rows, approximate="tanh") if activation == "gelu_tanh" else act[activation](rows) if activation in act else rows
    return rows.reshape(x.shape).to(dtype).contiguous(), total


def norm_operators() -> Any:
    """norm and add_norm as operators that compilers take as they are. Registered once a process."""
    operators: Any = torch.ops.fused_norms
    if not hasattr(operators, "norm"):
        library = torch.library.Library("fused_norms", "FRAGMENT")
        rest = "Tensor? weight, Tensor? bias, int[] geometry, bool rms, float eps, str activation, ScalarType dtype, int[] way)"
        library.define(f"norm(Tensor x, Tensor? residual, {rest} -> Tensor")
        library.define(f"add_norm(Tensor x, Tensor residual, {rest} -> (Tensor, Tensor)")
        for device in ("CUDA", "CPU"):
            library.impl("norm", norm, device)
            library.impl("add_norm", add_norm, device)
        library.impl("norm", lambda x, *rest: x.new_empty(x.shape, dtype=rest[-2]), "Meta")
        library.impl("add_norm", lambda x, *rest: (x.new_empty(x.shape, dtype=rest[-2]), x.new_empty(x.shape)), "Meta")
        operators.library = library  # else it would go with this module
    return operators


def norm_ways(rows: int, numbers: int) -> list[list[int]]:
    """Ways worth trying for so many rows of so many numbers."""
    block, ways = 1 << (numbers - 1).bit_length(), []
    if block <= WIDEST_ROW:
        for size in (1024, 4096):
            height = min(max(1, size // block), 1 << (rows - 1).bit_length())
            ways += [[height, block, max(1, min(16, height * block // each))] for each in (512, 1024)]
    if block > WIDEST_ROW or (numbers >= SPLIT_FROM and rows < SPLIT_ROWS):
        for piece, warps, least in PARTINGS:
            chunks = max(least, -(-numbers // (piece * MOST_PARTS)))
            ways.append([piece, warps, chunks, -(-numbers // (piece * chunks))])
    return [way for place, way in enumerate(ways) if way not in ways[:place]]


class NormPlace:
    """A normalisation in Dynamo's graph with the addition before it and the activation after it, where they are there."""

    def __init__(self, found: Norm, order: dict[torch.fx.Node, int]) -> None:
        self.rms, self.source, self.weight, self.bias, self.eps, self.geometry, nodes = found
        self.anchor = self.last = nodes[-1]
        self.residual: Any = None
        self.activation, self.keep = "none", False
        self.added = self.source
        read_again = self.source in (self.weight, self.bias)
        if calls(self.source, *NORM_ADDS) and len(self.source.args) == 2 and not self.source.kwargs and not read_again:
            total: Any = tensor_of(self.source)
            others = [user for user in self.source.users if user not in nodes]
            alike = all(item is not None and (item.shape, item.dtype) == (total.shape, total.dtype) and item.is_contiguous()
                        for item in map(tensor_of, self.source.args))
            if alike and all(order[user] > order[self.anchor] for user in others):
                (self.source, self.residual), self.keep = self.source.args, bool(others)
                nodes = [self.added, *nodes]
        user = next(iter(self.last.users)) if len(self.last.users) == 1 else None
        if calls(user, F.relu, torch.relu, "relu"):
            self.activation = "relu"
        elif calls(user, F.silu):
            self.activation = "silu"
        elif calls(user, F.gelu):
            self.activation = "gelu_tanh" if arguments(user, "input", "approximate")[1] == "tanh" else "gelu"
        if self.activation != "none":
            self.last = user
            nodes = [*nodes, user]
        self.nodes = nodes
        self.inputs = list(dict.fromkeys(item for node in nodes for item in node.all_input_nodes if item not in nodes))
        self.x, self.result = tensor_of(self.source), tensor_of(self.last)

    def settings(self) -> tuple[Any, ...]:
        """The operator's arguments after the tensors, but for the way."""
        return (self.geometry, self.rms, self.eps, self.activation, self.result.dtype)  # type: ignore[union-attr]

    def computable(self, order: dict[torch.fx.Node, int]) -> bool:
        """Whether the kernels can compute it, and nothing that writes in place stands between."""
        looks = [look for look in map(tensor_of, self.inputs) if look is not None]
        if self.x is None or not all(type(size) is int for look in looks for size in look.shape):  # sizes that change from call to call
            return False
        tensors = [tensor_of(item) for item in (self.source, self.weight, self.bias) if item is not None]
        fits = all(item is not None and item.dtype in NORM_TYPES and item.is_contiguous() and item.numel() for item in tensors)
        fits = fits and self.result is not None and self.result.dtype in NORM_TYPES and self.geometry[0] < LONGEST_ROW
        first = min(order[node] for node in self.nodes)
        return fits and not any(
            first < place < order[self.anchor] and node not in self.nodes and writes(node) for node, place in order.items())

    def alone(self) -> torch.fx.GraphModule:
        """These nodes as a graph of their own, of `inputs`."""
        small = torch.fx.Graph()
        known = {node: small.placeholder(f"input_{place}") for place, node in enumerate(self.inputs)}
        for node in self.nodes:
            known[node] = small.node_copy(node, lambda item: known[item])
            known[node].meta.clear()
        small.output(tuple(known[node] for node in ([self.last, self.added] if self.keep else [self.last])))
        return torch.fx.GraphModule(torch.nn.Module(), small)

    def key(self) -> tuple[Any, ...]:
        """What its time depends on."""
        shapes = [(tuple(item.shape), item.dtype, item.stride()) for item in map(tensor_of, self.inputs) if item is not None]
        return (tuple(str(node.target) for node in self.nodes), tuple(shapes), self.keep, self.eps, tuple(self.geometry),
                self.activation, self.result.dtype, self.x.device)  # type: ignore[union-attr]

    def put(self, graph: torch.fx.GraphModule, way: Sequence[int]) -> None:
        """The operator in the place of the nodes."""
        target = norm_operators().add_norm.default if self.keep else norm_operators().norm.default
        new = call_function(graph, self.anchor, target, self.source, self.residual, self.weight, self.bias, *self.settings(), list(way))
        if self.keep:
            new, total = (call_function(graph, self.anchor, operator.getitem, new, place) for place in (0, 1))
            self.added.replace_all_uses_with(total, delete_user_cb=lambda user: user not in self.nodes)
        self.last.replace_all_uses_with(new)
        for node in reversed(self.nodes):
            graph.graph.erase_node(node)


def fastest_norm(place: NormPlace) -> list[int] | None:
    """The fastest way on random numbers of these shapes; None where none is clearly faster than eager's operators and Inductor's."""
    if triton is None or place.x is None or place.x.device.type != ON_DEVICE:
        return None
    device = place.x.device
    known: dict[Any, Any] = {node: random_like(value) for node in place.inputs if (value := tensor_of(node)) is not None}
    samples = list(known.values())
    tensors = [known.get(item) for item in (place.source, place.residual, place.weight, place.bias)]
    with torch.no_grad():
        small = place.alone()
        others = [small, compiled_alone(place.alone(), samples)]
        limit = CLEARLY * min(median_us(lambda other=other: other(*samples), device) for other in others)  # type: ignore[misc]
        best = None
        for way in norm_ways(place.x.numel() // place.geometry[0], place.geometry[0]):
            try:
                took = median_us(lambda way=way: normed(*tensors, *place.settings(), way, place.keep), device)  # type: ignore[misc]
            except (RuntimeError, triton.errors.TritonError):  # no room for this way on the device
                continue
            limit, best = (took, way) if took < limit else (limit, best)
    return best


def compiled_alone(small: torch.fx.GraphModule, samples: Sequence[torch.Tensor]) -> Callable[..., Any]:
    """What Inductor makes of a graph, apart from the compilation that is under way."""
    with torch._guards.tracing(None):
        made: Callable[..., Any] = torch._inductor.compile_fx.compile_fx(small, list(samples))
    return made


def fuse_norms(
    graph: torch.fx.GraphModule, _example_inputs: Sequence[Any], choose: Callable[[NormPlace], list[int] | None] | None = None,
) -> int:
    """Replaces each normalisation where the kernels measure faster, once a distinct shape. Returns how many."""
    chosen: dict[tuple[Any, ...], list[int] | None] = {}
    fused = 0
    for node in list(graph.graph.nodes):
        found = library_norm(node) or rms_by_hand(node)
        if found is None:
            continue
        order = {item: number for number, item in enumerate(graph.graph.nodes)}
        place = NormPlace(found, order)
        if not place.computable(order):
            continue
        key = place.key()
        if key not in chosen:
            chosen[key] = (choose or fastest_norm)(place)
        way = chosen[key]
        if way is not None:
            place.put(graph, way)
            fused += 1
    return fused

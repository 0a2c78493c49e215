"""float32 products on 16-bit tensor cores: each operand as a sum of narrow parts, the parts' products summed in float32.

A row x of an operand is scaled by a power of two (float16 only: exact, and no part leaves the range), then x = hi + lo (+ lowest),
each part rounded to the nearest number of the narrow type. Of the products of parts those are summed that are not below float32's own
rounding, the small ones first:
  fp16x3: lo hi + hi lo + hi hi (11 bits a part; Ootomo and Yokota, IJHPCA 36(4), 2022, there without the scaling of rows)
  bf16x6, bf16x9: three parts of 8 bits each; the range is float32's own (Henry, Tang and Heinecke, ARITH 2019)
  tf32x3: Triton's own split of float32 tiles inside the kernel; no copy of the weights
  fp16x1: hi hi alone, as exact as TF32 (11 bits) at the speed of float16
Tensor cores cut off what an addition to a large sum drops, always towards zero: a sum over 4096 in one accumulator erred by 3.4e-6, where
the library's float32 erred by 8.1e-7 (H200). So each step's sum starts at zero and is added to the total in ordinary float32.
Rows that hold an infinity or NaN take part in the last product alone, so that 0 x inf does not turn an infinity into NaN.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from .product_kernels import ACTIVATIONS, finish_kernel, product_kernel, split_kernel, three_products_kernel, triton

HI, LO, LOWEST, HI_FINITE = 0, 1, 2, 3
"""Parts of a row. HI_FINITE is HI, but zero where the row holds an infinity or NaN."""
MODES: dict[str, tuple[torch.dtype, tuple[tuple[int, int], ...]]] = {
    "fp16x3": (torch.float16, ((LO, HI), (HI_FINITE, LO), (HI, HI))),
    "bf16x6": (torch.bfloat16, ((LOWEST, HI), (HI_FINITE, LOWEST), (LO, LO), (LO, HI), (HI_FINITE, LO), (HI, HI))),
    "bf16x9": (torch.bfloat16, ((LOWEST, LOWEST), (LOWEST, LO), (LO, LOWEST),
                                (LOWEST, HI), (HI_FINITE, LOWEST), (LO, LO), (LO, HI), (HI_FINITE, LO), (HI, HI))),
    "tf32x3": (torch.float32, ((HI, HI),)),
    "fp16x1": (torch.float16, ((HI, HI),)),
}
"""Mode -> (type of the parts, products of a part of the inputs and a part of the weights, in the order in which they are summed)."""
WIDTH = 64
"""Parts are padded with zeros to a multiple of this many columns: a tile's depth, so that kernels need no mask there."""

TRITONS_LAUNCH = triton.JITFunction.run if triton is not None else None
MOST_SHAPES = 64
"""Input shapes a product remembers launches for: a loop over growing inputs would fill the memory otherwise."""
wrap_triton: Any = getattr(torch.library, "wrap_triton", None)
"""Under this very name, and called with a kernel's own: torch's cache of compiled graphs looks for kernels in the source."""


def split_rows(x: torch.Tensor, blocks: Sequence[int], dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor | None]:
    """x (M, K) float32 -> (parts (M, len(blocks) x width) of dtype, what each row was divided by (M), None for bfloat16).

    The divisor of a row with an infinity or NaN is negative.

    In plain torch, so that torch.compile fuses it with what comes before. Rounded by bits: a compiler may leave out a cast to the
    narrow type and back.
    """
    half = dtype == torch.float16
    top = (x.view(torch.int32) & 0x7FFFFFFF).amax(dim=1, keepdim=True) >> 23
    finite, scale = top < 255, None
    if half:
        field = (268 - top).clamp(1, 253)
        x = x * (field << 23).view(torch.float32)
        inverse = ((254 - field) << 23).view(torch.float32)
        scale = torch.where(finite, inverse, -inverse).squeeze(1)
    add, keep = (0x1000, -0x2000) if half else (0x8000, -0x10000)
    zero = torch.zeros((), device=x.device)
    rounded = ((x.view(torch.int32) + add) & keep).view(torch.float32)
    rest = torch.where(finite, x - rounded, zero)
    low = ((rest.view(torch.int32) + add) & keep).view(torch.float32)
    parts = {HI: torch.where(finite, rounded, x), LO: low, LOWEST: rest - low, HI_FINITE: torch.where(finite, rounded, zero)}
    padding = -x.shape[1] % WIDTH
    chosen = [parts[block].to(dtype) for block in blocks]
    return torch.cat([F.pad(part, (0, padding)) if padding else part for part in chosen], dim=1), scale


def finish(
    total: torch.Tensor, row_scale: torch.Tensor | None, column_scale: torch.Tensor | None, bias: torch.Tensor | None,
) -> torch.Tensor:
    """Scales taken back and bias added, in plain torch."""
    if row_scale is not None and column_scale is not None:
        total = total * column_scale.abs() * row_scale.unsqueeze(1).abs()
    return total if bias is None else total + bias


def activate(value: torch.Tensor, activation: str) -> torch.Tensor:
    """The activations that the kernel has, in plain torch."""
    if activation == "gelu_tanh":
        return F.gelu(value, approximate="tanh")
    known: dict[str, Callable[..., torch.Tensor]] = {"relu": F.relu, "gelu": F.gelu, "silu": F.silu, "tanh": torch.tanh}
    return known[activation](value) if activation != "none" else value


class Launch:
    """One kernel with one grid and what follows its tensors: what Triton looks up at each launch is looked up at the first.

    Triton's own launch binds and classifies some 25 arguments each time; the compiled kernel's takes them as they are. So the tensors
    of later launches must be aligned as those of the first. Where a tool has put itself in place of Triton's launch, that one is used.
    """

    def __init__(self, kernel: Any, grid: tuple[int, ...], numbers: Sequence[float], **flags: Any) -> None:
        self.kernel, self.grid, self.numbers, self.flags = kernel, (*grid, 1, 1)[:3], tuple(numbers), flags
        self.launch: Callable[..., Any] = self.first
        self.rest: tuple[Any, ...] = ()

    def __call__(self, *tensors: torch.Tensor) -> None:
        if triton.JITFunction.run is TRITONS_LAUNCH:
            self.launch(*tensors, *self.rest)
        else:
            self.plain(*tensors)

    def plain(self, *tensors: torch.Tensor) -> Any:
        """Triton's own launch, which returns the compiled kernel (None in its interpreter)."""
        return self.kernel[self.grid](*tensors, *self.numbers, **self.flags)

    def first(self, *tensors: torch.Tensor) -> None:
        """Compiles. From Triton 3.3 on a compiled kernel takes the flags too, in the order of the signature."""
        compiled = self.plain(*tensors)
        if compiled is not None:
            version = tuple(int(part) for part in triton.__version__.split(".")[:2])
            names = self.kernel.arg_names[len(tensors) + len(self.numbers) :] if version >= (3, 3) else ()
            self.launch, self.rest = self.second, (compiled[self.grid], *self.numbers, *(self.flags[name] for name in names))

    def second(self, *arguments: Any) -> None:
        """Tries the compiled kernel's launch; a version of Triton that counts other arguments says so before it launches."""
        tensors = arguments[: len(arguments) - len(self.rest)]
        direct, *rest = self.rest
        try:
            direct(*tensors, *rest)
            self.launch, self.rest = direct, tuple(rest)
        except TypeError:
            self.launch, self.rest = self.plain, ()
            self.launch(*tensors)


class Product:
    """How to compute one product: a mode, and a tile of the Triton kernel (empty: the library's product of parts laid side by side).

    tile: BM, BN, BK, warps, stages, shares of K, and whether the three products of fp16x3 go together.
    both: the second operand may hold infinities and NaN too; without it that one is finite, as weights are.
    """

    def __init__(self, mode: str, tile: Sequence[int] = (), both: bool = False) -> None:
        self.mode, self.tile, self.both = mode, [*tile, 0][:7] if tile else [], both
        self.name = f"{mode}:{','.join(str(number) for number in self.tile)}{':both' if both else ''}"
        self.dtype, pairs = MODES[mode]
        if self.tile and self.tile[6]:
            pairs = tuple((HI if left == HI_FINITE else left, right) for left, right in pairs)
        elif both:
            pairs = (*((left, HI_FINITE if right == HI else right) for left, right in pairs[:-1]), pairs[-1])
        lefts, rights = [left for left, _right in pairs], [right for _left, right in pairs]
        self.a_blocks = sorted(set(lefts)) if tile else lefts
        self.w_blocks = sorted(set(rights)) if tile else rights
        places = [(self.a_blocks.index(left), self.w_blocks.index(right)) for left, right in pairs]
        self.terms = list(itertools.chain(*(places if tile else [(place, place) for place in range(len(pairs))])))
        self.kept: dict[tuple[Any, ...], Steps] = {}
        self.splits: dict[tuple[Any, ...], Launch] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return Product, (self.mode, self.tile, self.both)  # a copy starts with no compiled kernels, which can't be copied

    def prepare(self, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Parts of the weights (N, K), and their scale."""
        weight = weight.detach().contiguous()
        return (weight, None) if self.mode == "tf32x3" else split_rows(weight, self.w_blocks, self.dtype)

    def prepare_now(self, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        """The same by the kernel, for what is another at each call: (N, K) in any strides, on the current device if on a GPU."""
        weight = weight.detach().contiguous()
        if self.mode == "tf32x3" or not weight.is_cuda or triton is None:
            return self.prepare(weight)
        rows, depth = weight.shape
        blocks, half = self.w_blocks, self.dtype == torch.float16
        parts = weight.new_empty((rows, len(blocks) * (depth + -depth % WIDTH)), dtype=self.dtype)
        scale = weight.new_empty(rows) if half else weight
        key = (rows, depth, weight.get_device())
        launch = self.splits.get(key)
        if launch is None or weight.data_ptr() & 15:
            launch = split_launch(rows, depth, blocks, half)
            if not weight.data_ptr() & 15:
                if len(self.splits) >= MOST_SHAPES:
                    self.splits.clear()
                self.splits[key] = launch
        launch(weight, parts, scale)
        return parts, scale if half else None

    def __call__(
        self, x: torch.Tensor, w: torch.Tensor, column_scale: torch.Tensor | None, bias: torch.Tensor | None, activation: str = "none",
    ) -> torch.Tensor:
        """x (..., K) float32 -> activation(x weight^T + bias) (..., N) float32, w and column_scale from prepare."""
        if torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack() or type(x) is not torch.Tensor:
            operators = torch.ops.tensor_core_products
            return (operators.linear if self.tile else operators.opaque_linear)(x, w, column_scale, bias, activation, self.name)
        return self.computed(x, w, column_scale, bias, activation)

    def computed(
        self, x: torch.Tensor, w: torch.Tensor, column_scale: torch.Tensor | None, bias: torch.Tensor | None, activation: str,
    ) -> torch.Tensor:
        """The product now, launched past torch's dispatcher: an operator costs the host more than the kernels do."""
        if not x.is_cuda or triton is None:
            return self.in_torch(x, w, column_scale, bias, activation)
        if not x.numel():
            return x.new_empty((*x.shape[:-1], w.shape[0]))
        if x.get_device() != torch.cuda.current_device():  # Triton launches on the current one
            with torch.cuda.device(x.device):
                return self.computed(x, w, column_scale, bias, activation)
        x = x.contiguous()
        key = (x.shape, w.shape, x.get_device(), activation, bias is None)
        steps = self.kept.get(key)
        pointers = x.data_ptr() | w.data_ptr() | (0 if bias is None else bias.data_ptr())
        if steps is None or pointers & 15:
            steps = Steps(self, x, w, bias, activation)
            if not pointers & 15:
                if len(self.kept) >= MOST_SHAPES:
                    self.kept.clear()
                self.kept[key] = steps
        return steps(x, w, column_scale, bias)

    def in_torch(
        self, x: torch.Tensor, w: torch.Tensor, column_scale: torch.Tensor | None, bias: torch.Tensor | None, activation: str,
    ) -> torch.Tensor:
        """The same sum in plain torch."""
        a, row_scale = self.split(x)
        depth = w.shape[1] // len(self.w_blocks)
        found = [a[:, i * depth : (i + 1) * depth].float() @ w[:, j * depth : (j + 1) * depth].float().t()
                 for i, j in zip(self.terms[::2], self.terms[1::2], strict=True)]
        total = torch.stack(found).sum(0)
        if self.tile and self.tile[6] and row_scale is not None and column_scale is not None:
            total = torch.where((row_scale[:, None] < 0) | (column_scale < 0), found[-1], total)
        return activate(finish(total, row_scale, column_scale, bias), activation).view(*x.shape[:-1], w.shape[0])

    def split(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        """x (..., K) -> its rows' parts and their scale."""
        rows = x.reshape(-1, x.shape[-1])
        return (rows, None) if self.mode == "tf32x3" else split_rows(rows, self.a_blocks, self.dtype)

    def launch(self, rows: int, columns: int, depth: int, biased: bool, activation: str) -> Launch:
        """The kernel of this tile for a (rows, blocks x depth) and w (columns, blocks x depth)."""
        bm, bn, bk, warps, stages, splits, together = self.tile
        grid = (-(-rows // bm) * -(-columns // bn), splits)
        numbers = (rows, columns, depth, depth * len(self.a_blocks), depth * len(self.w_blocks), splits)
        flags = {"PARTIAL": splits > 1, "BIASED": biased, "ACTIVATION": ACTIVATIONS.index(activation),
                 "BM": bm, "BN": bn, "BK": bk, "GROUP": 8, "num_warps": warps, "num_stages": stages}
        if together:
            return Launch(three_products_kernel, grid, numbers, **flags)
        a_code, w_code = (sum(code << (2 * place) for place, code in enumerate(self.terms[start::2])) for start in (0, 1))
        return Launch(product_kernel, grid, numbers, A_CODE=a_code, W_CODE=w_code, TERMS=len(self.terms) // 2, MASKED=depth % bk != 0,
                      TF32X3=self.mode == "tf32x3", PROMOTED=len(self.terms) > 2, SCALED=self.dtype == torch.float16, **flags)


def allocator(device: torch.device) -> Callable[[Sequence[int], Sequence[int], torch.dtype], torch.Tensor]:
    """torch.empty_strided(size, stride, dtype) on a device: for CUDA as Inductor's own code calls it, eight times cheaper for the host."""
    direct = getattr(torch._C._dynamo.guards, "_empty_strided_cuda", None)
    if device.type == "cuda" and direct is not None and torch.version.hip is None:
        found: Callable[[Sequence[int], Sequence[int], torch.dtype], torch.Tensor] = direct
        return found
    return lambda size, stride, dtype: torch.empty_strided(size, stride, dtype=dtype, device=device)


def split_launch(rows: int, depth: int, blocks: Sequence[int], half: bool) -> Launch:
    """The kernel of split_rows for (rows, depth) and these parts."""
    width = depth + -depth % WIDTH
    code = sum(block << (2 * place) for place, block in enumerate(blocks))
    return Launch(split_kernel, (rows,), (depth, width), CODE=code, BLOCKS=len(blocks), HALF=half,
                  BLOCK=min(4096, triton.next_power_of_2(width)), num_warps=4)


class Steps:
    """The launches of a product at one shape: parts of the inputs, the product, the sum of its shares."""

    def __init__(self, how: Product, x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor | None, activation: str) -> None:
        depth, columns = x.shape[-1], w.shape[0]
        rows, width, blocks = x.numel() // depth, w.shape[1] // len(how.w_blocks), len(how.a_blocks)
        self.empty, self.half = allocator(x.device), how.dtype == torch.float16
        out_shape = (*x.shape[:-1], columns)
        self.out = (out_shape, x.new_empty(out_shape, device="meta").stride(), torch.float32)
        self.parts, self.scale = ((rows, blocks * width), (blocks * width, 1), how.dtype), ((rows,), (1,), torch.float32)
        self.split: Launch | None = None
        self.product: Launch | None = None
        self.finish: Launch | None = None
        if how.mode != "tf32x3":
            self.split = split_launch(rows, depth, how.a_blocks, self.half)
        splits = how.tile[5] if how.tile else 1
        self.shares = ((splits, rows, columns), (rows * columns, columns, 1), torch.float32)
        if how.tile:
            self.product = how.launch(rows, columns, width, bias is not None, activation)
        if splits > 1 or not how.tile:
            count = rows * columns
            self.finish = Launch(finish_kernel, (-(-count // 1024),), (rows, columns, count, splits), SCALED=self.half,
                                 BIASED=bias is not None, ACTIVATION=ACTIVATIONS.index(activation), BLOCK=1024, num_warps=4)

    def __call__(self, x: torch.Tensor, w: torch.Tensor, column_scale: torch.Tensor | None, bias: torch.Tensor | None) -> torch.Tensor:
        out = self.empty(*self.out)
        a, scale = x, w  # the weights stand in for what a kernel does not read
        if self.split is not None:
            a = self.empty(*self.parts)
            scale = self.empty(*self.scale) if self.half else w
            self.split(x, a, scale)
        others = (scale, w if column_scale is None else column_scale, w if bias is None else bias)
        if self.product is None:
            shares = torch.mm(a, w.t(), out_dtype=torch.float32)
        else:
            shares = out if self.finish is None else self.empty(*self.shares)
            self.product(a, w, shares, *others)
        if self.finish is not None:
            self.finish(shares, out, *others)
        return out


@functools.cache
def product_of(name: str) -> Product:
    """The product of this name."""
    mode, tile, *both = name.split(":")
    return Product(mode, [int(number) for number in tile.split(",") if number], bool(both))


def opaque_linear(
    x: torch.Tensor, parts: torch.Tensor, scale: torch.Tensor | None, bias: torch.Tensor | None, activation: str, product: str,
) -> torch.Tensor:
    """A product as an operator that compilers take as it is."""
    return product_of(product).computed(x, parts, scale, bias, activation)


def linear(
    x: torch.Tensor, parts: torch.Tensor, scale: torch.Tensor | None, bias: torch.Tensor | None, activation: str, product: str,
) -> torch.Tensor:
    """A product as an operator that torch.compile looks into: it launches the kernel itself, and fuses the rest with its neighbours."""
    how = product_of(product)
    if not x.is_cuda:
        return how.in_torch(x, parts, scale, bias, activation)
    a, row_scale = how.split(x)
    rows, columns, splits = a.shape[0], parts.shape[0], how.tile[5]
    launch = how.launch(rows, columns, parts.shape[1] // len(how.w_blocks), bias is not None, activation)
    kernel = wrap_triton(three_products_kernel) if how.tile[6] else wrap_triton(product_kernel)
    total = x.new_empty((rows, columns) if splits == 1 else (splits, rows, columns))
    # The weights stand in for what the kernel does not read: in place of x a compiler might write a copy of it for each.
    others = [parts if tensor is None else tensor for tensor in (row_scale, scale, bias)]
    kernel[launch.grid](a, parts, total, *others, *launch.numbers, **launch.flags)
    if splits > 1:
        total = activate(finish(total.sum(0), row_scale, scale, bias), activation)
    return total.view(*x.shape[:-1], columns)


def linear_shape(
    x: torch.Tensor, parts: torch.Tensor, scale: torch.Tensor | None, bias: torch.Tensor | None, activation: str, product: str,
) -> torch.Tensor:
    """What the result looks like."""
    return x.new_empty((*x.shape[:-1], parts.shape[0]))


NAMESPACE, SCHEMA = "tensor_core_products::", "(Tensor x, Tensor parts, Tensor? scale, Tensor? bias, str activation, str product) -> Tensor"
torch.library.custom_op(NAMESPACE + "opaque_linear", opaque_linear, mutates_args=(), schema=SCHEMA).register_fake(linear_shape)
if triton is not None and wrap_triton is not None:
    torch.library.triton_op(NAMESPACE + "linear", linear, mutates_args=())
else:
    torch.library.custom_op(NAMESPACE + "linear", opaque_linear, mutates_args=(), schema=SCHEMA).register_fake(linear_shape)

"""Which product each linear layer takes: measured on its own weights and inputs, kept for the next process. Copied along with products."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F

from .choices import Choices, machine_of
from .float32_flags import float32_flags, products_as, under_flags
from .measuring import ROUNDING_ROOM, errors, seconds
from .product_kernels import triton
from .products import MODES, WIDTH, Product

LEAST_WORK = 2**24
"""Multiplications below which a product is left to the library: it takes less time than a launch."""
LEAST_ROWS = 32
"""Rows below which reading the weights is what takes the time, and parts hold as many bytes as float32."""
SAMPLE = 256
"""Rows, about, on which errors are measured."""
GAIN = 1.03
"""A product must be this much faster than the library's to be replaced: the timing's own noise."""
COMPENSATED = ("fp16x3", "tf32x3", "bf16x6", "bf16x9")
"""Modes as exact as float32, in order of preference. Nine products take longer than six: see Chooser.tried_tiles."""
PRODUCT_CHOICES = Choices("tensor_core_products", MODES, (0, 7))


def tiles_for(rows: int, columns: int, depth: int, processors: int, mode: str) -> list[list[int]]:
    """Tiles worth trying for a product (M, N, K) on a device of so many multiprocessors: BM, BN, BK, warps, stages, splits, together."""
    large = {
        "fp16x1": [[128, 256, 64, 8, 3, 0], [128, 128, 64, 4, 4, 0]],
        "fp16x3": [[128, 128, 64, 8, 3, 1], [128, 128, 32, 8, 4, 1], [128, 64, 32, 4, 4, 1]],
        "tf32x3": [[128, 128, 32, 8, 3, 0], [128, 64, 32, 4, 3, 0]],
    }.get(mode, [[128, 128, 64, 8, 4, 0]])
    small = {
        "fp16x1": [[128, 128, 64, 4, 4, 0], [64, 128, 64, 4, 4, 0], [64, 64, 64, 4, 5, 0]],
        "fp16x3": [[128, 128, 64, 8, 3, 1], [64, 128, 64, 4, 3, 1], [64, 64, 64, 4, 3, 1]],
        "tf32x3": [[128, 64, 32, 4, 3, 0], [64, 64, 32, 4, 4, 0]],
    }.get(mode, [[64, 128, 64, 4, 4, 0], [64, 64, 64, 4, 5, 0]])
    # Each compilation takes a second or two: large tiles where there are enough of them, small ones or shares of K where there are not.
    enough = rows * columns >= 2 * processors * 128 * 128
    found = []
    for shape in large if enough else small:
        count = -(-rows // shape[0]) * -(-columns // shape[1])
        splits = max(1, min(processors // count, -(-depth // WIDTH) // 2, 16))
        found += [[*shape[:5], share, shape[5]] for share in sorted({splits, 1 if 2 * count > processors else splits})]
    return found


def need_tensor_cores() -> None:
    """Raises NotImplementedError where the kernels can't run."""
    if triton is None or not torch.cuda.is_available() or torch.cuda.get_device_capability() < (8, 0):
        raise NotImplementedError("not applicable: needs Triton and a GPU with bfloat16 tensor cores (compute capability 8.0)")


class Chooser:
    """Decides for each linear layer, on its real weights and inputs: the fastest product that errs by no more than the library's.

    modes in order of preference: the first with a product that is faster is taken. Each layer's error is measured; equal shapes share
    one timing, which is kept for the next process. tf32: held against the library's TF32 instead of its float32.
    """

    def __init__(self, modes: Sequence[str], *, tf32: bool = False) -> None:
        self.modes, self.tf32 = modes, tf32
        self.timed: dict[str, list[Product]] = {}
        self.notes: list[str] = []

    def __call__(self, linear: torch.nn.Linear, x: torch.Tensor) -> Product | None:
        """The product to use, None for the library's own."""
        flat = x.detach().reshape(-1, x.shape[-1])
        rows, columns, depth = flat.shape[0], linear.out_features, linear.in_features
        if x.dtype != torch.float32 or linear.weight.dtype != torch.float32 or rows < LEAST_ROWS or rows * columns * depth < LEAST_WORK:
            return None
        if not bool(torch.isfinite(linear.weight).all()):
            return None
        key = self.key(linear, flat)
        if key not in self.timed:
            kept = PRODUCT_CHOICES.kept().get(key)
            self.timed[key] = self.faster(linear, flat) if kept is None else [self.product(linear, mode, tile) for mode, tile in kept]
            if kept is None:
                PRODUCT_CHOICES.keep(key, [(how.mode, how.tile) for how in self.timed[key]])
        return next((how for how in self.timed[key] if self.as_exact(linear, flat, how)), None)

    def key(self, linear: torch.nn.Linear, x: torch.Tensor) -> str:
        """What a choice depends on: device, versions, shape (M, N, K), whether a bias is added, modes, what it is held against."""
        shape = f"{x.shape[0]}x{linear.out_features}x{linear.in_features}"
        return "|".join([machine_of(x, triton), shape, str(linear.bias is not None), *self.modes, str(self.tf32)])

    def product(self, _linear: torch.nn.Linear, mode: str, tile: Sequence[int]) -> Product:
        """One that may take the layer's place."""
        return Product(mode, tile)

    def ready(self, linear: torch.nn.Linear, how: Product) -> Callable[[torch.Tensor], torch.Tensor]:
        """What is done at each call: x (M, K) -> (M, N)."""
        w, scale = how.prepare(linear.weight)
        return lambda x: how(x, w, scale, linear.bias)

    def library(self, linear: torch.nn.Linear, x: torch.Tensor) -> torch.Tensor:
        """What the library gives in the precision that is asked for."""
        with under_flags(products_as(float32_flags(), self.tf32)):
            return F.linear(x, linear.weight, linear.bias)

    def as_exact(self, linear: torch.nn.Linear, x: torch.Tensor, how: Product) -> bool:
        """Whether a product errs by no more than the library against float64, on up to SAMPLE of the rows."""
        stride = max(1, x.shape[0] // SAMPLE)
        exact = F.linear(x[::stride].double(), linear.weight.double(), None if linear.bias is None else linear.bias.double())
        limit = errors(self.library(linear, x)[::stride], exact)
        found = errors(self.ready(linear, how)(x)[::stride], exact)
        rooms = ROUNDING_ROOM if self.tf32 else (1.0, 1.0)
        return all(error <= room * most for room, error, most in zip(rooms, found, limit, strict=True))

    def faster(self, linear: torch.nn.Linear, x: torch.Tensor) -> list[Product]:
        """Products faster than the library and as exact, the fastest first: of the first mode that has one."""
        limit = seconds(lambda: self.library(linear, x)) / GAIN
        fast: list[Product] = []
        for mode in self.modes:
            made = [self.product(linear, mode, tile) for tile in self.tried_tiles(linear, x, mode, fast)]
            timed = [item for item in (self.time(linear, x, how) for how in made) if item is not None and item[0] < limit]
            fast = [how for _time, how in sorted(timed, key=lambda item: item[0])]
            found = [how for how in fast if self.as_exact(linear, x, how)]
            if found:
                return found
        return []

    def tried_tiles(self, linear: torch.nn.Linear, x: torch.Tensor, mode: str, fast: Sequence[Product]) -> list[list[int]]:
        """Tiles to time. fast: products of the mode before that are faster than the library but not as exact, the fastest first.

        bf16x9 has one, bf16x6's fastest: the same kernel with half as many products again. Where that mode was too slow it has none.
        """
        if mode == "bf16x9":
            return [how.tile for how in fast[:1]]
        processors = torch.cuda.get_device_properties(x.device).multi_processor_count
        tiles = tiles_for(x.shape[0], linear.out_features, linear.in_features, processors, mode)
        return [*tiles, []] if mode != "tf32x3" and hasattr(torch.ops.aten.mm, "dtype") else tiles

    def time(self, linear: torch.nn.Linear, x: torch.Tensor, how: Product) -> tuple[float, Product] | None:
        """(seconds, product); None where the tile does not compile or the device has no room for it."""
        try:
            call = self.ready(linear, how)
            call(x)
            return seconds(lambda: call(x)), how
        except (RuntimeError, triton.errors.TritonError) as error:
            self.notes.append(f"{how.mode} {how.tile}: {error}")
            return None

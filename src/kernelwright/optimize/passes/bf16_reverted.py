"""The whole model in bfloat16, but for layers that are slower in it."""

from __future__ import annotations

from ...model.profile import Operator
from .base import LAYER_CAST, Context, Pass, Prediction, Products
from .conditions import CONVOLUTIONS, HALF_TIMES, PRODUCTS, first, narrow_words, needs_float32, needs_gpu, needs_module, not_yet_compiled
from .shares import worth

ALIGNED = 8
"""bfloat16 numbers that make the 16 bytes that the library's kernels load at a time."""
LEAST_PCT = 1.0
"""Of float32's time; in bfloat16 what is left there weighs several times as much."""


def is_padded(operator: Operator) -> bool:
    """Whether the weight is (N, K), (K, N) or (output channels, input channels / groups, ...) with one of those no multiple of ALIGNED."""
    name = operator.operator_name
    convolves = "conv_depthwise" in name or any(word in name for word in CONVOLUTIONS)
    if not convolves and (name not in PRODUCTS or "bmm" in name):
        return False
    shapes = [shape for shape in operator.input_shapes if len(shape) >= (3 if convolves else 2)]
    return len(shapes) > 1 and any(size % ALIGNED for size in (shapes[1][:2] if convolves else shapes[-1][-2:]))


def _refuse(context: Context) -> str | None:
    none = None if any(is_padded(item) for item in context.seen.operators) else \
        "the profile shows no product or convolution of sizes that bfloat16 kernels pad"
    return first(needs_gpu(context), needs_module(context), needs_float32(context), not_yet_compiled(context), none,
                 worth(context.share_where_pct(is_padded), "products and convolutions of sizes that bfloat16 kernels pad", LEAST_PCT))


def _predict(context: Context) -> Prediction:
    share_pct = context.share_where_pct(is_padded)
    words = "as bf16; layers of sizes that its kernels pad" + (f" hold {share_pct:.0f}% {context.whole}" if share_pct is not None else "")
    return narrow_words(context, words, HALF_TIMES, 2.0)


PASS = Pass(
    name="bf16_reverted", layer=LAYER_CAST, dimension="precision",
    precision="bf16", training=False, refuse=_refuse, predict=_predict, copies_weights=True, casts_edges=True, measures=True, lenient=True,
    conflicts=frozenset({"tf32", "bf16", "bf16_autocast", "scaled_fp16", "selective_tf32", "selective_bf16", "selective_fp16",
                         "split_products", "split_attention", "scaled_fp16_attention"}),
    takes="values",
    products=Products("bfloat16"),
    why="The model in bfloat16, but for layers of odd sizes that were measured to be faster in float32, casts around them included.",
)

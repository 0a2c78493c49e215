"""float32 attention as float16 products of scaled rows."""

from __future__ import annotations

from .base import LAYER_FOLD, Context, Pass, Prediction, Products
from .sdpa_backend import ATTENTION
from .split_attention import PASS as SPLIT
from .split_attention import split_gain

FASTEST = 6.0
"""At best. torch's kernel takes three TF32 products for one, and this one takes one of float16, which tensor cores do twice as fast (H200
datasheet: 989 and 494 TFLOP/s)."""


def _predict(context: Context) -> Prediction:
    return split_gain(context, context.share_pct(*ATTENTION), "float32 attention", fastest=FASTEST)


PASS = Pass(
    name="scaled_fp16_attention", layer=LAYER_FOLD, level="module", dimension="attention", cost="compile",
    precision="tf32", training=False, refuse=SPLIT.refuse, predict=_predict, fixes_addresses=True, measures=True,
    conflicts=frozenset({"sdpa_backend", "bf16", "bf16_autocast", "selective_bf16", "selective_fp16", "separable_convolutions"}),
    products=Products("float16"),
    why="Attention as float16 products of rows scaled by powers of two, where faster: TF32's 11 bits at float16's speed.",
)

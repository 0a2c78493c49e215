"""float32 attention as error-compensated products on tensor cores."""

from __future__ import annotations

from .base import LAYER_FOLD, Context, Move, Pass, Prediction, Products
from .conditions import first, needs_float32, needs_gpu, needs_module, not_yet_compiled
from .sdpa_backend import ATTENTION
from .shares import worth

FASTEST = 3.0
"""At best. torch's kernel takes three TF32 products for one, and this one three of float16, which tensor cores do twice as fast (H200
datasheet: 989 and 494 TFLOP/s); the rest is room for their newer instructions, which torch's float32 kernel does not use."""


def _refuse(context: Context) -> str | None:
    none = None if context.runs(*ATTENTION) else "the profile shows no scaled_dot_product_attention"
    return first(needs_gpu(context), needs_module(context), needs_float32(context), not_yet_compiled(context), none,
                 worth(context.share_pct(*ATTENTION), "attention kernels"))


def split_gain(context: Context, share_pct: float | None, what: str, taken: float = 1.0, fastest: float = FASTEST) -> Prediction:
    """What is expected where attention of this share is computed so. taken: the part of the share that it takes when the pass comes.
    fastest: how many times as fast it is at best."""
    if share_pct is None:
        return Prediction(f"{what}: share not measured")
    left = 1.0 - taken * min(share_pct, 100.0) / 100.0 * (1.0 - 1.0 / fastest)
    return Prediction(f"{what} holds {share_pct:.0f}% {context.whole}", (1.0, 1.0 / left), (Move("kernel time", left, 1.0),))


def _predict(context: Context) -> Prediction:
    return split_gain(context, context.share_pct(*ATTENTION), "float32 attention")


PASS = Pass(
    name="split_attention", layer=LAYER_FOLD, level="module", dimension="attention", cost="compile",
    training=False, refuse=_refuse, predict=_predict, fixes_addresses=True, measures=True,
    conflicts=frozenset({"sdpa_backend", "bf16", "bf16_autocast", "selective_bf16", "selective_fp16", "separable_convolutions",
                         "scaled_fp16_attention"}),
    products=Products("float16", times=3),
    why="Attention as sums of narrow products on tensor cores: each place was measured, and no less exact than torch's float32 kernel.",
)

"""float32 attention written by hand as float16 products of scaled rows."""

from __future__ import annotations

from .base import LAYER_LAYOUT, Context, Pass, Prediction, Products
from .scaled_fp16_attention import FASTEST
from .split_attention_by_hand import gain_by_hand, refuse_by_hand


def _predict(context: Context) -> Prediction:
    return gain_by_hand(context, FASTEST)


PASS = Pass(
    name="scaled_fp16_attention_by_hand", layer=LAYER_LAYOUT, level="functional", dimension="attention", cost="compile",
    precision="tf32", training=False, refuse=refuse_by_hand, predict=_predict, measures=True, early=True,
    partners=frozenset({"sdpa_substitution"}), better_beside=frozenset({"sdpa_substitution", "freeze_weights"}),
    conflicts=frozenset({"sdpa_backend", "bf16", "bf16_autocast", "bf16_reverted", "selective_bf16", "selective_fp16"}),
    products=Products("float16"),
    why="Attention as float16 products of rows scaled by powers of two, where faster: TF32's 11 bits at float16's speed.",
)

"""TF32 tensor cores for float32 products."""

from __future__ import annotations

from .base import LAYER_FLAGS, Context, Pass, Prediction, Products
from .conditions import TF32_TIMES, first, narrow_words, needs_float32, needs_gpu


def _refuse(context: Context) -> str | None:
    flags = context.environment
    on = "TF32 is already on" if flags.matmul_tf32 and flags.cudnn_tf32 else None
    return first(needs_gpu(context), needs_float32(context), on)


def _predict(context: Context) -> Prediction:
    off = [name for name, on in (("matmul", context.environment.matmul_tf32), ("cuDNN", context.environment.cudnn_tf32)) if not on]
    return narrow_words(context, f"tensor cores for float32 in {' and '.join(off)}", TF32_TIMES)


PASS = Pass(
    name="tf32", layer=LAYER_FLAGS, level="runtime", dimension="precision",
    precision="tf32", refuse=_refuse, predict=_predict,
    conflicts=frozenset({"bf16", "bf16_autocast"}),
    takes="values",
    products=Products("tf32"),
    why="float32 products use TF32 tensor cores (10 mantissa bits); the flags are set during the call only.",
)

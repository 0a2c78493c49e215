"""Float32 without TF32, as a row beside the ladder."""

from __future__ import annotations

from .base import LAYER_FLAGS, Context, Pass, Prediction
from .conditions import CONVOLUTIONS, PRODUCTS, RECURRENT, first, needs_float32, needs_gpu


def _refuse(context: Context) -> str | None:
    flags = context.environment
    narrow = [*(PRODUCTS if flags.matmul_tf32 else ()), *((*CONVOLUTIONS, *RECURRENT) if flags.cudnn_tf32 else ())]
    off = None if narrow and context.runs(*narrow) else "nothing of the original may use TF32: it is strict float32 itself"
    return first(needs_gpu(context), needs_float32(context), off)


def _predict(_context: Context) -> Prediction:
    return Prediction("no TF32: for comparison")


PASS = Pass(
    name="strict_float32", layer=LAYER_FLAGS, level="runtime", dimension="precision", training=False, refuse=_refuse, predict=_predict,
    takes="values",
    why="No float32 product or convolution uses TF32; the flags are set during the call only.",
)

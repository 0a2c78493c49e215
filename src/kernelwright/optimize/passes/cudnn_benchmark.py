"""cuDNN picks its algorithms by measuring."""

from __future__ import annotations

from .base import LAYER_FLAGS, Context, Pass, Prediction
from .conditions import CONVOLUTIONS, first, needs_convolution, needs_gpu, share_words


def _refuse(context: Context) -> str | None:
    on = "cudnn.benchmark is already on" if context.environment.cudnn_benchmark else None
    return first(needs_gpu(context), needs_convolution(context), on)


def _predict(context: Context) -> Prediction:
    return share_words(context, context.share_pct(*CONVOLUTIONS), "convolutions")


PASS = Pass(
    name="cudnn_benchmark", layer=LAYER_FLAGS, level="runtime", dimension="algorithms",
    refuse=_refuse, predict=_predict,
    why="cuDNN measures all its algorithms for these shapes once; the flags are set during the call only.",
)

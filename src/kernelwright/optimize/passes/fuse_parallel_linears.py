"""Linear layers that read the same tensor as one product."""

from __future__ import annotations

from .base import LAYER_FOLD, Context, Pass, Prediction
from .conditions import FEWER_KERNELS, first, needs_module, not_yet_compiled, share_words

LINEARS = ("aten::linear", "aten::addmm", "aten::mm")


def _refuse(context: Context) -> str | None:
    none = None if context.runs(*LINEARS) else "the profile shows no linear layer"
    return first(needs_module(context), not_yet_compiled(context), none)


def _predict(context: Context) -> Prediction:
    return share_words(context, context.share_pct(*LINEARS), "linear layers, of which those with one input become one product,",
                       FEWER_KERNELS)


PASS = Pass(
    name="fuse_parallel_linears", layer=LAYER_FOLD, level="functional", dimension="fusion", cost="compile",
    training=False, refuse=_refuse, predict=_predict, copies_weights=True,
    why="Linear layers that read the same tensor (query, key, value) become one product with their weights side by side.",
)

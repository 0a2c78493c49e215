"""Linear layer and activation in one cuBLASLt call."""

from __future__ import annotations

from .base import LAYER_COMPILE, Context, Pass, Prediction
from .conditions import FEWER_KERNELS, LESS_TRAFFIC, first, needs_gpu, needs_module, not_yet_compiled, share_words

ACTIVATIONS = ("aten::relu", "aten::clamp_min", "aten::gelu")
LINEARS = ("aten::linear", "aten::addmm")


def _refuse(context: Context) -> str | None:
    pair = context.runs(*ACTIVATIONS) and context.runs(*LINEARS)
    return first(needs_gpu(context), needs_module(context), not_yet_compiled(context),
                 None if pair else "the profile shows no linear layer beside a ReLU or GELU")


def _predict(context: Context) -> Prediction:
    return share_words(context, context.share_pct(*ACTIVATIONS), "activations, of which those right after a linear layer go into it,",
                       FEWER_KERNELS, LESS_TRAFFIC, removed=True)


PASS = Pass(
    name="fuse_linear_activation", layer=LAYER_COMPILE, level="functional", dimension="fusion", cost="compile",
    training=False, refuse=_refuse, predict=_predict, measures=True,
    opened_by=frozenset({"fold_linear_bn"}),
    why="Linear layer and ReLU (or tanh-form GELU) run as one cuBLASLt call wherever that measured faster at its shape.",
)

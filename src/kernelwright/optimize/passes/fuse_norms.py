"""Normalisations with the addition before and the activation after them in one or two Triton launches."""

from __future__ import annotations

from ...model.profile import Operator
from .base import LAYER_COMPILE, Context, Pass, Prediction
from .conditions import FEWER_KERNELS, LESS_TRAFFIC, first, needs_gpu, not_yet_compiled, share_words

LIBRARY = ("layer_norm", "rms_norm", "group_norm", "instance_norm")
BY_HAND = ("aten::rsqrt", "aten::sqrt", "aten::pow", "aten::mean")
"""What an RMS norm written out is made of, beside multiplications."""
AROUND = frozenset({"aten::add", "aten::add_", "aten::relu", "aten::clamp_min", "aten::gelu", "aten::silu"})


def _refuse(context: Context) -> str | None:
    shown = context.runs(*LIBRARY) or (context.runs("aten::mean") and context.runs("aten::rsqrt", "aten::sqrt"))
    return first(needs_gpu(context), not_yet_compiled(context),
                 None if shown else "the profile shows no layer, RMS, group or instance norm")


def _taken(item: Operator) -> bool:
    return item.operator_name in AROUND or any(
        word in name for name in (item.operator_name, *item.parents) for word in (*LIBRARY, *BY_HAND))


def _predict(context: Context) -> Prediction:
    return share_words(context, context.share_where_pct(_taken), "norms, and additions and activations, which go into those beside them,",
                       FEWER_KERNELS, LESS_TRAFFIC, removed=True)


PASS = Pass(
    name="fuse_norms", layer=LAYER_COMPILE, level="functional", dimension="fusion", cost="compile",
    training=False, refuse=_refuse, predict=_predict, measures=True,
    why="Addition, layer, RMS, group or instance norm and activation run as Triton kernels wherever that measured faster at its shape.",
)

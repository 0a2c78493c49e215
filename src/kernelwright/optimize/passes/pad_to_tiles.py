"""Linear layers padded to the alignment of the fast kernels."""

from __future__ import annotations

from .base import LAYER_LAYOUT, Context, Pass, Prediction
from .conditions import first, needs_gpu, needs_module, not_yet_compiled, share_words

PRODUCTS = ("aten::linear", "aten::addmm", "aten::mm")
ALIGNED = 8
"""Numbers: 16 bytes of half precision. Sizes that are a multiple of it need no padding for alignment."""


def _refuse(context: Context) -> str | None:
    operators = [item for item in context.seen.operators if item.operator_name in PRODUCTS]
    shapes = [shape for item in operators for shape in item.input_shapes if len(shape) >= 2]
    odd = any(size % ALIGNED for shape in shapes for size in shape[-2:])
    none = "no linear layer's sizes miss the kernels' alignment" if shapes and not odd else None
    return first(needs_gpu(context), needs_module(context), not_yet_compiled(context),
                 None if operators else "the profile shows no linear layer", none)


def _predict(context: Context) -> Prediction:
    return share_words(context, context.share_pct(*PRODUCTS), "linear layers, of which those of odd size may reach faster kernels,")


PASS = Pass(
    name="pad_to_tiles", layer=LAYER_LAYOUT, level="functional", dimension="layout", cost="compile",
    training=False, refuse=_refuse, predict=_predict, copies_weights=True, measures=True,
    why="Linear layers of odd sizes are padded with zeros to the kernels' alignment wherever that measured faster.",
)

"""bfloat16 at chosen layers."""

from __future__ import annotations

from .base import LAYER_CAST, Context, Pass, Prediction, Products
from .conditions import CONVOLUTIONS, PRODUCTS, first, needs_float32, needs_module, not_yet_compiled, share_words

LAYERS = (*PRODUCTS, *CONVOLUTIONS, "aten::lstm", "aten::gru", "_cudnn_rnn")


def needs_layers(context: Context) -> str | None:
    """Only float32 modules with layers that can be cast one by one."""
    none = None if context.runs(*LAYERS) else "the profile shows no product, convolution or recurrent layer"
    return first(needs_module(context), needs_float32(context), not_yet_compiled(context), none)


def share_of_layers(context: Context) -> Prediction:
    """What those layers hold of the time."""
    return share_words(context, context.share_pct(*LAYERS), "products, convolutions and recurrent layers")


PASS = Pass(
    name="selective_bf16", layer=LAYER_CAST, level="module", dimension="precision", cost="compile",
    precision="bf16", training=False, refuse=needs_layers, predict=share_of_layers, copies_weights=True, measures=True,
    conflicts=frozenset({"bf16", "bf16_autocast", "scaled_fp16", "split_products", "selective_fp16"}),
    products=Products("bfloat16"),
    why="Layers that were measured to be faster in bfloat16 compute in it; everything between them stays float32.",
)

"""TF32 at chosen layers."""

from __future__ import annotations

from .base import LAYER_CAST, Context, Pass, Prediction, Products
from .conditions import CONVOLUTIONS, PRODUCTS, first, needs_float32, needs_gpu, needs_module, not_yet_compiled, share_words

FIRST = 8
"""Compute capability from which on there is TF32."""


def _layers(context: Context) -> tuple[str, ...]:
    """Operators of layers that do not use TF32 already."""
    flags = context.environment
    return (*(() if flags.matmul_tf32 else PRODUCTS), *(() if flags.cudnn_tf32 else CONVOLUTIONS))


def _refuse(context: Context) -> str | None:
    capability = context.environment.compute_capability
    old = "the device has no TF32" if capability is not None and int(capability.split(".")[0]) < FIRST else None
    layers = _layers(context)
    on = None if layers else "TF32 is already on"
    none = None if context.runs(*layers) else "the profile shows no product or convolution without TF32"
    return first(needs_gpu(context), needs_module(context), needs_float32(context), not_yet_compiled(context), old, on, none)


def _predict(context: Context) -> Prediction:
    return share_words(context, context.share_pct(*_layers(context)), "products and convolutions without TF32")


PASS = Pass(
    name="selective_tf32", layer=LAYER_CAST, level="module", dimension="precision",
    precision="tf32", training=False, refuse=_refuse, predict=_predict, fixes_addresses=True, measures=True,
    conflicts=frozenset({"tf32", "bf16", "bf16_autocast", "scaled_fp16", "selective_bf16", "selective_fp16", "split_products"}),
    takes="values",
    products=Products("tf32"),
    why="Linear layers and convolutions that were measured to be faster in TF32 set its flags for their own call; all else is float32.",
)

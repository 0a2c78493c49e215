"""float16 at chosen layers."""

from __future__ import annotations

from .base import LAYER_CAST, Pass, Products
from .selective_bf16 import needs_layers, share_of_layers

PASS = Pass(
    name="selective_fp16", layer=LAYER_CAST, level="module", dimension="precision", cost="compile",
    precision="bf16", training=False, refuse=needs_layers, predict=share_of_layers, copies_weights=True, measures=True,
    conflicts=frozenset({"bf16", "bf16_autocast", "scaled_fp16", "split_products", "selective_bf16"}),
    products=Products("float16"),
    why="Layers that were measured to be faster in float16 compute in it; everything between them stays float32.",
)

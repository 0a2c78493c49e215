"""Host tensors that each call copies to the GPU, ahead and from pinned memory."""

from __future__ import annotations

from .base import LAYER_FOLD, Pass
from .shares import needs_uploads, without_uploads

PASS = Pass(
    name="pinned_copies", layer=LAYER_FOLD, dimension="host",
    training=False, refuse=needs_uploads, predict=without_uploads, conflicts=frozenset({"resident_constants"}), copies_weights=True,
    why="Tensors that the model keeps on the host are copied from pinned memory, while the operators before their use run.",
)

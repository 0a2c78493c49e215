"""Host tensors that each call copies to the GPU stay there."""

from __future__ import annotations

from .base import LAYER_FOLD, Pass
from .shares import needs_uploads, without_uploads

PASS = Pass(
    name="resident_constants", layer=LAYER_FOLD, dimension="host",
    training=False, refuse=needs_uploads, predict=without_uploads, conflicts=frozenset({"pinned_copies"}), copies_weights=True,
    frees_capture=True,
    why="Tensors that the model keeps on the host and copies at each call are copied once (and again after they change).",
)

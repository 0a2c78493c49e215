"""Weights as constants of the compiled code: what depends on weights alone, a transposed copy or a cast, is computed once. A linear
layer's own weight stays as it is, rows along the summed dimension: BLAS's kernels take it so."""

from __future__ import annotations

from typing import Any


def freeze_weights() -> dict[str, Any]:
    """Inductor's freezing; its own parallel-linear fusion and weight layouts come with it."""
    return {"freezing": True}

"""Weights as constants of the compiled code: what depends on weights alone, a transposed copy or a cast, is computed once. On a GPU
a linear layer's own weight stays as it is (transposed_weights.py measures the other layout)."""

from __future__ import annotations

from typing import Any


def freeze_weights() -> dict[str, Any]:
    """Inductor's freezing; its own parallel-linear fusion and weight layouts come with it."""
    return {"freezing": True}

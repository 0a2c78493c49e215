"""Weights as constants of the compiled code: laid out for their products once, and what depends on weights alone computed once."""

from __future__ import annotations

from typing import Any


def freeze_weights() -> dict[str, Any]:
    """Inductor's freezing; its own parallel-linear fusion and weight layouts come with it."""
    return {"freezing": True}

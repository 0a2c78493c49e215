"""Lifetimes of intermediate results planned at compile time: few allocations a call, buffers used again while they are in the cache."""

from __future__ import annotations

from typing import Any


def inductor_memory_planning() -> dict[str, Any]:
    """Options of Inductor."""
    return {"memory_planning": True}

"""Persistent and looped reduction kernels side by side; the faster one at these sizes is kept."""

from __future__ import annotations

from typing import Any


def inductor_multi_kernel() -> dict[str, Any]:
    """Options of Inductor."""
    return {"triton.multi_kernel": 1}

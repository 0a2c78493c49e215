"""Horizontal fusion: generated kernels that do not depend on each other run as one launch."""

from __future__ import annotations

from typing import Any


def inductor_combo_kernels() -> dict[str, Any]:
    """Options of Inductor."""
    return {"combo_kernels": True, "benchmark_combo_kernel": True}

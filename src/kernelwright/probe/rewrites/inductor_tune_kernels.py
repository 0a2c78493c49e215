"""Inductor's elementwise and reduction kernels tuned by measurement, beyond the few configurations that it tries by default."""

from __future__ import annotations

from typing import Any


def inductor_tune_kernels() -> dict[str, Any]:
    """Options of Inductor."""
    return {"coordinate_descent_tuning": True, "max_autotune_pointwise": True}

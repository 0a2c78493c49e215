"""Persistent Triton products that load through the tensor memory accelerator (compute capability 9.0) join the choices."""

from __future__ import annotations

from typing import Any


def inductor_tma_products() -> dict[str, Any]:
    """Options of Inductor."""
    return {"max_autotune_gemm": True, "triton.enable_persistent_tma_matmul": True}

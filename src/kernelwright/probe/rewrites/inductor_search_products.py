"""The whole search space of Inductor's matrix product kernels: minutes of compiling for each shape."""

from __future__ import annotations

from typing import Any


def inductor_search_products() -> dict[str, Any]:
    """Options of Inductor."""
    return {"max_autotune_gemm": True, "max_autotune_gemm_search_space": "EXHAUSTIVE"}

"""1x1 convolutions as the matrix products that they are; these can fuse what follows them."""

from __future__ import annotations

from typing import Any


def inductor_conv_1x1() -> dict[str, Any]:
    """Options of Inductor."""
    return {"conv_1x1_as_mm": True, "max_autotune_gemm": True}

"""No change to channels-last by Inductor: for convolutions that gain less from it than the conversions cost."""

from __future__ import annotations

from typing import Any


def inductor_keep_layout() -> dict[str, Any]:
    """Options of Inductor."""
    return {"layout_optimization": False}

"""Several blocks reduce one row together and combine their parts through memory: for few, long rows."""

from __future__ import annotations

from typing import Any


def inductor_cooperative_reductions() -> dict[str, Any]:
    """Options of Inductor."""
    return {"triton.cooperative_reductions": True}

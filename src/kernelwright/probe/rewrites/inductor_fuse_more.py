"""Higher limits on what one kernel reads and computes, and fusion of kernels that only read the same data."""

from __future__ import annotations

from typing import Any


def inductor_fuse_more() -> dict[str, Any]:
    """Options of Inductor."""
    return {"aggressive_fusion": True, "realize_reads_threshold": 16, "realize_opcount_threshold": 100}

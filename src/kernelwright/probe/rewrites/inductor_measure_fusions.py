"""Each fusion is timed against the two kernels apart, instead of being decided by a rule."""

from __future__ import annotations

from typing import Any


def inductor_measure_fusions() -> dict[str, Any]:
    """Options of Inductor."""
    return {"benchmark_fusion": True, "benchmark_epilogue_fusion": True}

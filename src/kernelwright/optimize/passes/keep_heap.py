"""Memory of large results is kept by the process (CPU)."""

from __future__ import annotations

from .base import LAYER_FLAGS, Context, Pass, Prediction

KEPT_BYTES = 1 << 25
"""glibc keeps freed blocks of so much by itself, and twice as much in all (mallopt(3), the dynamic thresholds on 64 bits)."""


def _refuse(context: Context) -> str | None:
    if context.on_gpu:
        return "for memory of the host; the GPU's is kept by PyTorch already"
    most = max((row.peak_bytes - row.before_bytes for row in context.profile.memory if row.device == "cpu"), default=None)
    if most is None or most > KEPT_BYTES:
        return None
    return f"a call's results hold {most / 2**20:.2f} MiB at most, which the C library keeps by itself"


def _allocated_bytes(context: Context) -> float | None:
    timeline = context.profile.timeline
    rows = [row.allocated_bytes for row in context.profile.memory if row.device == "cpu"]
    return sum(rows) / timeline.steps if rows and timeline is not None and timeline.steps else None


def _predict(context: Context) -> Prediction:
    allocated = _allocated_bytes(context)
    if allocated is None:
        return Prediction("allocated memory not recorded")
    return Prediction(f"a call allocates {allocated / 2**20:.3g} MiB, which the operating system clears anew where it was given back")


PASS = Pass(
    name="keep_heap", layer=LAYER_FLAGS, level="runtime", dimension="host",
    refuse=_refuse, predict=_predict,
    takes="values", lasts=True,
    why="Large results reuse memory that the process keeps (malloc settings of the whole process), instead of new pages at each call.",
)

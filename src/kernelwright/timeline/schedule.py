"""How long the work of one stream would take if its copies ran on engines of their own. Pure, vectorised, exact."""

from __future__ import annotations

import numpy as np

from .intervals import Int64

COMPUTE, UPLOAD, DOWNLOAD = 0, 1, 2
"""Kinds of work. Copies that cannot move count as COMPUTE."""


def overlapped_ns(kinds: Int64, durations: Int64) -> int:
    """Time until all is done, ns, when uploads, kernels and downloads each run one after the other on their own engine.

    kinds, durations: shape (n,), in the order of the stream. A kernel waits for the uploads before it and for the kernel
    before it, a download for the kernels before it. Never more than durations.sum().
    """
    uploaded = np.cumsum(np.where(kinds == UPLOAD, durations, 0))
    computed = _finish(np.where(kinds == COMPUTE, durations, 0), np.where(kinds == COMPUTE, uploaded, 0))
    downloaded = _finish(np.where(kinds == DOWNLOAD, durations, 0), np.where(kinds == DOWNLOAD, computed, 0))
    return int(max(uploaded.max(initial=0), computed.max(initial=0), downloaded.max(initial=0)))


def _finish(durations: Int64, ready: Int64) -> Int64:
    """When each item of one engine is done: done[i] = max(done[i - 1], ready[i]) + duration[i]."""
    total = np.cumsum(durations)
    return (total + np.maximum.accumulate(ready - (total - durations))).astype(np.int64) if total.size else total

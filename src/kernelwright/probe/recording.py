"""torch.profiler without what it imports for nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.profiler import profile

LAZY = "_inductor"


class Recorder(profile):  # type: ignore[misc]
    """torch.profiler.profile. torch's own looks for Inductor's CUDA graphs with `hasattr(torch, "_inductor")`, which imports Inductor and
    Dynamo (1.7 s, several times that without byte code) also where nothing was compiled, so that there are none."""

    def prepare_trace(self) -> None:
        """See torch.profiler.profile."""
        with _nothing_imported():
            super().prepare_trace()


@contextmanager
def _nothing_imported() -> Iterator[None]:
    lazy = getattr(torch, "_lazy_modules", None)  # of torch 2.4 to 2.13
    if "torch._inductor" in sys.modules or not isinstance(lazy, set) or LAZY not in lazy:
        yield
        return
    lazy.discard(LAZY)
    try:
        yield
    finally:
        lazy.add(LAZY)

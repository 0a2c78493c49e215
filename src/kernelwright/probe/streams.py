"""Whether a call issues work on several streams, which the events of mode event can't tell apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

INSTEAD = "--mode nsys shows the streams, what overlaps and what waits"


def entered(call: Callable[[], Any]) -> int:
    """Streams, other than the current one, that one call makes current through torch. Those that CUDA C++ or a graph uses by itself are
    not seen."""
    original, here = torch.cuda.set_stream, torch.cuda.current_stream()
    seen: set[int] = set()

    def watched(stream: Any) -> None:
        if stream is not None and stream != here:
            seen.add(int(stream.cuda_stream))
        original(stream)

    torch.cuda.set_stream = watched
    try:
        call()
    finally:
        torch.cuda.set_stream = original
    return len(seen)

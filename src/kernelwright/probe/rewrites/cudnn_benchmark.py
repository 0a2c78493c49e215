"""cuDNN measures its algorithms for these shapes once and keeps the fastest, instead of choosing by a heuristic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def cudnn_benchmark(model: Callable[..., Any], _args: tuple[Any, ...], _kwargs: dict[str, Any]) -> Callable[..., Any]:
    """The model with torch.backends.cudnn.benchmark on during the call only."""

    def call(*args: Any, **kwargs: Any) -> Any:
        before = torch.backends.cudnn.benchmark
        torch.backends.cudnn.benchmark = True
        try:
            return model(*args, **kwargs)
        finally:
            torch.backends.cudnn.benchmark = before

    return call

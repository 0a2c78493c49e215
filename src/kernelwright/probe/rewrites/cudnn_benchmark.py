"""cuDNN measures all its algorithms for these shapes once and keeps the fastest, instead of choosing by a heuristic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def cudnn_benchmark(model: Callable[..., Any], _args: tuple[Any, ...], _kwargs: dict[str, Any]) -> Callable[..., Any]:
    """The model with torch.backends.cudnn.benchmark on during the call only, for all algorithms (PyTorch's default: the first ten)."""
    cudnn = torch.backends.cudnn

    def call(*args: Any, **kwargs: Any) -> Any:
        before = cudnn.benchmark, cudnn.benchmark_limit
        cudnn.benchmark, cudnn.benchmark_limit = True, 0
        try:
            return model(*args, **kwargs)
        finally:
            cudnn.benchmark, cudnn.benchmark_limit = before

    return call

"""torch.compile that measures several kernels for each matrix product and convolution and keeps the fastest; no CUDA graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .compiled_calls import bare


def compile_max_autotune_no_cudagraphs(
    model: Callable[..., Any], _args: tuple[Any, ...], _kwargs: dict[str, Any], backend: Any = "inductor",
) -> Callable[..., Any]:
    """The compiled model; it is compiled and tuned at the first call, which can take minutes."""
    compiled: Callable[..., Any] = bare(torch.compile(model, backend=backend, mode="max-autotune-no-cudagraphs"))
    return compiled

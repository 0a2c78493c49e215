"""torch.compile that measures several kernels for each product and convolution, under its own CUDA graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .compiled_calls import bare
from .trees import map_tensors


def compile_max_autotune(
    model: Callable[..., Any], _args: tuple[Any, ...], _kwargs: dict[str, Any], backend: Any = "inductor",
) -> Callable[..., Any]:
    """The compiled model, tuned at the first call. Outputs are cloned: the graph's own memory is overwritten by the next call."""
    compiled = bare(torch.compile(model, backend=backend, mode="max-autotune"))

    def call(*args: Any, **kwargs: Any) -> Any:
        torch.compiler.cudagraph_mark_step_begin()
        return map_tensors(torch.clone, compiled(*args, **kwargs))

    return call

"""torch.compile in its default mode: elementwise chains become one kernel, without CUDA graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .compiled_calls import bare


def compile_default(
    model: Callable[..., Any], _args: tuple[Any, ...], _kwargs: dict[str, Any], backend: Any = "inductor",
) -> Callable[..., Any]:
    """The compiled model; it is compiled at the first call."""
    compiled: Callable[..., Any] = bare(torch.compile(model, backend=backend))
    return compiled

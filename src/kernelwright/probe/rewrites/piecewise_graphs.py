"""What Dynamo can trace as CUDA graphs, the rest as it is: for calls that can't be captured whole, since the host reads a value midway."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .trees import map_tensors


def piecewise_graphs(model: Callable[..., Any], _args: tuple[Any, ...], _kwargs: dict[str, Any]) -> Callable[..., Any]:
    """The model under torch.compile's own "cudagraphs" backend: every operator as it was, no kernel is generated. Outputs are cloned."""
    captured = torch.compile(model, backend="cudagraphs", dynamic=False)

    def call(*args: Any, **kwargs: Any) -> Any:
        torch.compiler.cudagraph_mark_step_begin()
        return map_tensors(torch.clone, captured(*args, **kwargs))

    return call

"""The workload's own torch.compile taken off."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def unwrap_compiled(model: Callable[..., Any], _args: tuple[Any, ...], _kwargs: dict[str, Any]) -> Callable[..., Any]:
    """What torch.compile was put around. Its weights are the same tensors."""
    inner: Callable[..., Any] | None = getattr(model, "_orig_mod", None) or getattr(model, "_torchdynamo_orig_callable", None)
    if inner is None:
        raise NotImplementedError("not applicable: torch.compile is not around the workload")
    return inner

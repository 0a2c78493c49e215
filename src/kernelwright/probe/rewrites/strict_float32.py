"""Strict float32: no product and no convolution in TF32, whatever the workload's own flags allow. For comparison."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .float32_flags import all_as, float32_flags, under_flags


def strict_float32(model: Callable[..., Any], _args: tuple[Any, ...], _kwargs: dict[str, Any]) -> Callable[..., Any]:
    """The model without TF32 during the call."""

    def call(*args: Any, **kwargs: Any) -> Any:
        with under_flags(all_as(float32_flags(), tf32=False)):
            return model(*args, **kwargs)

    return call

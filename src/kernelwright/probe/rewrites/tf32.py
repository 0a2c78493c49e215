"""TF32: float32 matrix products and convolutions on tensor cores, inputs rounded to 10 mantissa bits. Lower precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .float32_flags import all_as, float32_flags, under_flags


def tf32(model: Callable[..., Any], _args: tuple[Any, ...], _kwargs: dict[str, Any]) -> Callable[..., Any]:
    """The model with TF32 allowed during the call only (a backward pass after it keeps the caller's flags)."""

    def call(*args: Any, **kwargs: Any) -> Any:
        with under_flags(all_as(float32_flags(), tf32=True)):
            return model(*args, **kwargs)

    return call

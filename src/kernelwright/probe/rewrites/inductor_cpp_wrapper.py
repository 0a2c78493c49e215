"""The code that calls the kernels is C++ too: less host time for each launch."""

from __future__ import annotations

from typing import Any


def inductor_cpp_wrapper() -> dict[str, Any]:
    """Options of Inductor."""
    return {"cpp_wrapper": True}

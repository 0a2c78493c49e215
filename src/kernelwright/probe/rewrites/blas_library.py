"""Matrix products by cuBLASLt or cuBLAS, whichever is faster for this call, instead of PyTorch's fixed choice for each operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

WORTH_PCT = 3
"""Less may be noise, and the next process would choose otherwise."""


def blas_library(model: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[..., Any]:
    """The model under the faster setting of torch.backends.cuda.preferred_blas_library, measured here, set during the call only."""
    prefer = getattr(torch.backends.cuda, "preferred_blas_library", None)
    if prefer is None:
        raise NotImplementedError("not applicable: this torch has no choice of BLAS library")

    def under(library: Any) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            before = prefer()
            prefer(library)
            try:
                return model(*args, **kwargs)
            finally:
                prefer(before)

        return call

    def milliseconds(call: Callable[..., Any]) -> float:
        """Shortest of ten calls: what disturbs a call only makes it longer."""
        times: list[float] = []
        for _ in range(13):  # the first three warm up
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            call(*args, **kwargs)
            end.record()
            end.synchronize()
            times.append(start.elapsed_time(end))
        return min(times[3:])

    usual = prefer()
    times = {library: milliseconds(under(library)) for library in ("cublas", "cublaslt")}
    best = min(times, key=lambda library: times[library])
    if times[best] >= (1.0 - WORTH_PCT / 100.0) * milliseconds(under(usual)):
        raise NotImplementedError(f"not applicable: neither library is {WORTH_PCT}% faster than the present choice")
    return under(best)

"""Matrix products by cuBLASLt or cuBLAS, whichever is faster for this call, instead of PyTorch's fixed choice for each operator."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

WORTH_PCT = 3
"""Less may be noise, and the next process would choose otherwise."""
ROUNDS, CALLS = 3, 5
"""The faster one must be so in each round, of the shortest of so many calls under each setting."""
LONGEST_PAUSE_S = 0.05
CYCLES_PER_S = 2e9
"""About those of a GPU's clock."""


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

    usual, libraries = prefer(), ("cublas", "cublaslt")
    ways = {library: under(library) for library in (usual, *libraries)}
    pause_s = 0.0
    for call in (*ways.values(), *ways.values()):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        call(*args, **kwargs)
        pause_s = min(LONGEST_PAUSE_S, time.perf_counter() - begin)  # of the last one: the first calls warm up
    rounds = [{library: milliseconds(call, args, kwargs, 1.5 * pause_s) for library, call in ways.items()} for _ in range(ROUNDS)]
    best = min(libraries, key=lambda library: sum(times[library] for times in rounds))
    if any(times[best] >= (1.0 - WORTH_PCT / 100.0) * times[usual] for times in rounds):
        raise NotImplementedError(f"not applicable: neither library is {WORTH_PCT}% faster than the present choice")
    return under(best)


def milliseconds(call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], pause_s: float) -> float:
    """The device's time of a call, queued behind a pause in which the host launches it: the shortest, what disturbs makes it longer."""
    times: list[float] = []
    for _ in range(CALLS):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda._sleep(int(CYCLES_PER_S * pause_s))
        start.record()
        call(*args, **kwargs)
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return min(times)

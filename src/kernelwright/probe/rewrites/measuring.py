"""The error of a result and the device time of a call, for rewrites that choose between kernels. Copied into files that do."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import torch

ROUNDING_ROOM = (1.1, 2.0)
"""Roundings of one size: by so much an error may exceed the library's, in the norm and at its largest place. The largest of many errors is
chance: over forty draws of an attention's inputs 0.7 to 1.4 times the library's, where the norms differ by 2% (tests draw them)."""""


def errors(got: torch.Tensor, exact: torch.Tensor) -> tuple[float, float]:
    """(relative error in the norm, largest absolute error) against float64."""
    exact = exact.detach()
    difference = got.detach().double() - exact
    return float(difference.norm() / exact.norm().clamp_min(1e-300)), float(difference.abs().max())


def seconds(function: Callable[[], Any], calls: int = 10) -> float:
    """Device time of one call: median of three batches, queued behind a pause so that launches cost nothing."""
    found = []
    for _ in range(3):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda._sleep(10_000_000)
        start.record()
        for _ in range(calls):
            function()
        end.record()
        end.synchronize()
        found.append(start.elapsed_time(end) / calls / 1e3)
    return float(statistics.median(found))

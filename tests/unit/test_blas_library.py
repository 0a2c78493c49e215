"""Which BLAS library is taken: the device's times are given here."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from kernelwright.probe.rewrites import blas_library as file


@pytest.fixture
def setting(monkeypatch) -> list[Any]:
    """What torch was told, the last one last."""
    told: list[Any] = ["default"]

    def prefer(library: Any = None) -> Any:
        if library is not None:
            told.append(library)
        return told[-1]

    monkeypatch.setattr(torch.backends.cuda, "preferred_blas_library", prefer)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    return told


@pytest.mark.parametrize(("rounds", "chosen"), [
    ([(1.0, 0.9, 1.1), (1.0, 0.95, 1.0), (1.1, 1.0, 1.0)], "cublas"),
    ([(1.0, 1.0, 0.9), (1.0, 0.9, 0.9), (1.0, 1.0, 0.96)], "cublaslt"),
    ([(1.0, 0.5, 1.0), (1.0, 0.98, 1.0), (1.0, 0.5, 1.0)], None),  # in one of them not: noise
    ([(1.0, 1.0, 1.0)] * 3, None),
])
def test_a_library_is_taken_where_it_is_faster_in_each_round(setting, monkeypatch, rounds, chosen) -> None:
    times = itertools.chain(*rounds)
    seen: list[Any] = []

    def milliseconds(call: Any, args: Any, kwargs: Any, pause_s: float) -> float:
        assert 0 < pause_s < 1 and call(*args, **kwargs) == 7 and seen[-1] == setting[-2], "under its own setting"
        return next(times)

    def model(x: int, *, y: int) -> int:
        seen.append(setting[-1])
        return x + y

    monkeypatch.setattr(file, "milliseconds", milliseconds)
    if chosen is None:
        with pytest.raises(NotImplementedError, match="not applicable: neither library is 3% faster"):
            file.blas_library(model, (3,), {"y": 4})
    else:
        fast = file.blas_library(model, (3,), {"y": 4})
        assert fast(3, y=5) == 8 and seen[-1] == chosen
    assert setting[-1] == "default" and next(times, None) is None

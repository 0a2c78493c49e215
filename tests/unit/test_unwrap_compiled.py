"""A workload that brings torch.compile: recognised where it is around the callable, and taken off there."""

from __future__ import annotations

import pytest
import torch

from kernelwright.probe.facts import is_compiled, under_compile
from kernelwright.probe.rewrites.unwrap_compiled import unwrap_compiled


def test_what_torch_compile_was_put_around_is_found_and_nothing_else():
    model = torch.nn.Linear(2, 2)

    def function(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    for plain in (model, function):
        compiled = torch.compile(plain, backend="eager")
        assert is_compiled(compiled) and under_compile(compiled) is plain and unwrap_compiled(compiled, (), {}) is plain
    inside = torch.nn.Sequential(torch.compile(torch.nn.Linear(2, 2), backend="eager"))
    assert is_compiled(inside) and under_compile(inside) is None and under_compile(model) is None
    with pytest.raises(NotImplementedError, match=r"torch\.compile is not around the workload"):
        unwrap_compiled(inside, (), {})

"""Calls of a model on the side, which leave it as it was. Copied into files that hold a rewrite that measures on such a call."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def on_the_side(model: Any) -> Iterator[None]:
    """Inside it the model, or a copy that shares its buffers, is called to look at it. Afterwards buffers and generators of random numbers
    are as they were. Raises NotImplementedError where such a call changed buffers, or drew numbers in training mode (batch norms and
    dropouts, and whatever else depends on the mode): a rewrite would fix for all calls what changes from call to call."""
    if not isinstance(model, torch.nn.Module):
        raise NotImplementedError("not applicable: needs an nn.Module")
    buffers = {name: (buffer, buffer.detach().clone()) for name, buffer in model.named_buffers() if buffer.layout is torch.strided}
    numbers, choices = _generators(), random.getstate()
    try:
        yield
    finally:
        now = dict(model.named_buffers())
        changed = [name for name, (buffer, value) in buffers.items() if now.get(name) is not buffer or not _alike(buffer, value)]
        drew = random.getstate() != choices or any(not torch.equal(one, two) for one, two in zip(_generators(), numbers, strict=False))
        random.setstate(choices)
        torch.set_rng_state(numbers[0])
        if len(numbers) > 1:
            torch.cuda.set_rng_state(numbers[1])
        with torch.no_grad():
            for buffer, value in (buffers[name] for name in changed):
                buffer.copy_(value)
    if changed:
        raise NotImplementedError(f"not applicable: a call of the model changes {changed[0]}")
    if drew and any(module.training for module in model.modules()):
        raise NotImplementedError("not applicable: a call of the model, which is in training mode, draws random numbers")


def _generators() -> list[torch.Tensor]:
    states = [torch.get_rng_state()]
    return [*states, torch.cuda.get_rng_state()] if torch.cuda.is_initialized() else states


def _alike(one: torch.Tensor, two: torch.Tensor) -> bool:
    """By their bytes: a NaN is itself."""
    return bool(torch.equal(*(tensor.detach().reshape(-1).view(torch.uint8) for tensor in (one, two))))

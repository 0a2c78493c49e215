"""Calls of a model on the side, which leave it as it was. Copied into files that hold a rewrite that measures on such a call."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn.parameter import is_lazy


@contextmanager
def on_the_side(model: Any) -> Iterator[None]:
    """Inside it the model, or a copy that shares its buffers, is called to look at it. Afterwards the buffers, and the random numbers of
    Python, numpy and torch, are as they were. Raises NotImplementedError where a model in training mode changed buffers or drew numbers
    (batch norms, dropouts, whatever else depends on the mode): a rewrite would fix for all calls what changes from call to call."""
    if not isinstance(model, torch.nn.Module):
        raise NotImplementedError("not applicable: needs an nn.Module")
    buffers = [(f"{path}.{name}".lstrip("."), module, name, buffer, _copied(buffer)) for path, module in model.named_modules()
               for name, buffer in module._buffers.items() if buffer is not None]
    devices = sorted({tensor.device.index for tensor in (*model.parameters(), *model.buffers()) if tensor.is_cuda})
    before = _numbers(devices)
    changed: list[str] = []
    try:
        yield
    finally:
        drew = not _same(before, _numbers(devices))
        _restore(before, devices)
        for path, module, name, buffer, value in buffers:
            if module._buffers.get(name) is not buffer or not _alike(buffer, value):
                changed.append(path)
                module._buffers[name] = buffer
                with torch.inference_mode(buffer.is_inference()), torch.no_grad():
                    if buffer.shape == value.shape:
                        buffer.copy_(value)
                    else:
                        buffer.data = value
    if (changed or drew) and any(module.training for module in model.modules()):
        what = f"changes {changed[0]}" if changed else "draws random numbers"
        raise NotImplementedError(f"not applicable: a call of the model, which is in training mode, {what}")


def _copied(buffer: torch.Tensor) -> torch.Tensor:
    """Its numbers. Raises NotImplementedError for one that can't be compared and put back."""
    if is_lazy(buffer) or buffer.is_meta or buffer.is_quantized or buffer.is_nested or buffer.layout is not torch.strided:
        raise NotImplementedError("not applicable: the model has a buffer that is no plain tensor")
    return buffer.detach().clone()


def _alike(one: torch.Tensor, two: torch.Tensor) -> bool:
    """By their bytes: a NaN is itself."""
    if one.shape != two.shape or one.dtype != two.dtype:
        return False
    return bool(torch.equal(*(tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8)
                              for tensor in (one, two))))


def _numbers(devices: list[int]) -> list[Any]:
    numpy = getattr(sys.modules.get("numpy"), "random", None)
    return [random.getstate(), numpy.get_state() if numpy is not None else None, torch.get_rng_state(),
            *(torch.cuda.get_rng_state(device) for device in devices)]


def _same(one: list[Any], two: list[Any]) -> bool:
    """Of numpy's what was there before counts."""
    if one[1] is not None and (one[1][1].tobytes(), one[1][2:]) != (two[1][1].tobytes(), two[1][2:]):
        return False
    return bool(one[0] == two[0] and all(torch.equal(*pair) for pair in zip(one[2:], two[2:], strict=True)))


def _restore(states: list[Any], devices: list[int]) -> None:
    random.setstate(states[0])
    if states[1] is not None:
        sys.modules["numpy"].random.set_state(states[1])
    torch.set_rng_state(states[2])
    for device, state in zip(devices, states[3:], strict=True):
        torch.cuda.set_rng_state(state, device)

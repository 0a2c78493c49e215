"""CUDA graphs on the CPU: what is captured is recorded operator by operator, and replayed on the same memory."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class OnGpu(torch.Tensor):
    """A tensor that says that it is on a GPU; so do its copies."""

    is_cuda = True


class Graph(TorchDispatchMode):
    """Stands in for torch.cuda.CUDAGraph."""

    def __init__(self) -> None:
        super().__init__()
        self.recorded: list = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        self.recorded.append((func, args, kwargs or {}, out))
        return out

    @torch.no_grad()
    def replay(self) -> None:
        """Each result goes where the captured one lies."""
        for func, args, kwargs, out in self.recorded:
            for place, value in zip(tree_leaves(out), tree_leaves(func(*args, **kwargs)), strict=True):
                if isinstance(place, torch.Tensor) and place.data_ptr() != value.data_ptr():
                    place.copy_(value)


def stand_in(monkeypatch) -> None:
    """What a capture asks of torch.cuda, without a GPU."""
    stream = SimpleNamespace(wait_stream=lambda other: None)
    stand_ins = {"CUDAGraph": Graph, "Stream": lambda: stream, "current_stream": lambda: stream,
                 "stream": lambda one: contextlib.nullcontext(), "graph": lambda one: one, "synchronize": lambda: None,
                 "get_rng_state": lambda: None, "set_rng_state": lambda state: None}
    for name, one in stand_ins.items():
        monkeypatch.setattr(torch.cuda, name, one)

"""A DataLoader that the model iterates over in its call gets worker processes: the next batch is made while this one is computed on."""

from __future__ import annotations

import contextlib
import glob
import math
import os
import tempfile
import uuid
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset

from .trees import map_tensors
from .twins import own_tensors, twin_of


def loader_workers(model: Callable[..., Any], _args: tuple[Any, ...], _kwargs: dict[str, Any]) -> Any:
    """A copy of the model (weights shared) whose own DataLoaders have workers that stay, and pinned batches where there is a GPU.

    The order of batches is the sampler's, as before. A dataset that draws random numbers draws others in a worker.
    """
    modules = list(model.modules()) if isinstance(model, torch.nn.Module) else []
    loaders = [value for module in modules for value in vars(module).values() if isinstance(value, DataLoader)]
    slow = [loader for loader in loaders if loader.num_workers == 0 and not isinstance(loader.dataset, IterableDataset)]
    if not slow:
        raise NotImplementedError("not applicable: the model has no DataLoader of its own without workers")
    prefix = f"batch-{uuid.uuid4().hex}-"

    def with_workers(loader: Any) -> Any:
        batches = {"batch_sampler": loader.batch_sampler} if loader.batch_sampler is not None else {
            "batch_size": None, "sampler": loader.sampler}
        return DataLoader(loader.dataset, **batches, num_workers=min(4, os.cpu_count() or 1), persistent_workers=True,
                          collate_fn=InFiles(loader.collate_fn, prefix), pin_memory=torch.cuda.is_available(), generator=loader.generator)

    twin = twin_of(model, own_tensors(model) | {id(loader): with_workers(loader) for loader in slow})
    weakref.finalize(twin, forget, prefix)  # also at exit
    return twin


def forget(prefix: str) -> None:
    """Remove the files of batches that nobody took."""
    for path in glob.glob(os.path.join(tempfile.gettempdir(), f"{prefix}*")):
        with contextlib.suppress(OSError):
            os.unlink(path)


class InFiles:
    """A collate_fn whose batch leaves its worker in temporary files. Torch hands over descriptors, by a socket in the file system, which
    confined processes may not connect to."""

    def __init__(self, collate: Callable[[Any], Any], prefix: str) -> None:
        self.collate, self.prefix = collate, prefix

    def __call__(self, items: Any) -> Any:
        return map_tensors(self._leaving, self.collate(items))

    def _leaving(self, tensor: torch.Tensor) -> Any:
        plain = type(tensor) is torch.Tensor and tensor.device.type == "cpu" and tensor.layout is torch.strided
        return Leaving(tensor.detach(), self.prefix) if plain and not tensor.is_quantized else tensor


class Leaving:
    """A tensor on the way out of a process: pickled, it is written to a file; unpickled, it is that file, mapped and without its name."""

    def __init__(self, tensor: torch.Tensor, prefix: str) -> None:
        self.tensor, self.prefix = tensor, prefix

    def __reduce__(self) -> tuple[Any, ...]:
        if not self.tensor.numel():
            return arrived, ("", self.tensor.dtype, tuple(self.tensor.shape))
        handle, path = tempfile.mkstemp(prefix=self.prefix)
        os.close(handle)
        torch.from_file(path, shared=True, size=self.tensor.numel(), dtype=self.tensor.dtype).copy_(self.tensor.reshape(-1))
        return arrived, (path, self.tensor.dtype, tuple(self.tensor.shape))


def arrived(path: str, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    """The tensor of a file, which is mapped and loses its name; an empty one has none."""
    if not path:
        return torch.empty(shape, dtype=dtype)
    tensor = torch.from_file(path, shared=True, size=math.prod(shape), dtype=dtype).reshape(shape)
    os.unlink(path)
    return tensor

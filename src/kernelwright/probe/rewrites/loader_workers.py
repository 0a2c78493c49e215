"""A DataLoader that the model iterates over in its call gets worker processes: the next batch is made while this one is computed on."""

from __future__ import annotations

import functools
import io
import os
import socket
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset

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
    connects = may_connect()

    def with_workers(loader: Any) -> Any:
        batches = {"batch_sampler": loader.batch_sampler} if loader.batch_sampler is not None else {
            "batch_size": None, "sampler": loader.sampler}
        return Drawing(loader.dataset, **batches, num_workers=min(4, os.cpu_count() or 1), persistent_workers=True,
                          multiprocessing_context="fork", collate_fn=loader.collate_fn if connects else Saving(loader.collate_fn),
                          pin_memory=torch.cuda.is_available(), generator=loader.generator)

    return twin_of(model, own_tensors(model) | {id(loader): with_workers(loader) for loader in slow})


class Drawing(DataLoader):  # type: ignore[misc]
    """A loader whose workers stay, and that draws a random number at each beginning as one without workers does: what shuffles by the
    global generator goes on as it did."""

    def __iter__(self) -> Any:
        if self._iterator is not None:  # the first time torch draws it
            torch.empty((), dtype=torch.int64).random_(generator=self.generator)
        return super().__iter__()


def may_connect() -> bool:
    """Whether this process may connect to a socket in the file system, by which torch fetches the tensors of a worker's batch. A process
    that a judge confines may not."""
    with socket.socket(socket.AF_UNIX) as tried:
        try:
            tried.connect("/nowhere")
        except PermissionError:
            return False
        except OSError:
            return True
    return True


class Saving:
    """A collate_fn whose batch goes through the worker's pipe as a whole: slower than torch's way, and without a socket."""

    def __init__(self, collate: Callable[[Any], Any]) -> None:
        self.collate = collate

    def __call__(self, items: Any) -> Any:
        saved = io.BytesIO()
        torch.save(self.collate(items), saved)
        saved.seek(0)
        return Saved(saved)


class Saved:
    """Unpickled, it is the batch."""

    def __init__(self, batch: io.BytesIO) -> None:
        self.batch = batch

    def __reduce__(self) -> tuple[Any, ...]:
        return functools.partial(torch.load, weights_only=False), (self.batch,)  # by the same program's worker

"""A DataLoader that the model iterates over in its call gets worker processes: the next batch is made while this one is computed on."""

from __future__ import annotations

import os
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

    def with_workers(loader: Any) -> Any:
        batches = {"batch_sampler": loader.batch_sampler} if loader.batch_sampler is not None else {
            "batch_size": None, "sampler": loader.sampler}
        return DataLoader(loader.dataset, **batches, num_workers=min(4, os.cpu_count() or 1), persistent_workers=True,
                          collate_fn=loader.collate_fn, pin_memory=torch.cuda.is_available(), generator=loader.generator)

    return twin_of(model, own_tensors(model) | {id(loader): with_workers(loader) for loader in slow})

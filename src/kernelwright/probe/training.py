"""Training steps: found by their loss; one call is zero_grad, forward, backward."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from . import tree
from .failures import workload_failed


def find_loss(output: Any) -> torch.Tensor | None:
    """The scalar that a training step goes backward from: the output itself, its `.loss` or its ["loss"]; None when there is none."""
    loss = output
    if isinstance(output, Mapping):
        loss = output.get("loss")
    elif not isinstance(output, torch.Tensor):
        loss = getattr(output, "loss", None)
    if isinstance(loss, torch.Tensor) and loss.dim() == 0 and loss.requires_grad:
        return loss
    return None


def may_train(model: Any, inputs: Any) -> bool:
    """True for a module in train mode with anything to learn, in torch's default grad mode: its output then decides."""
    if not isinstance(model, torch.nn.Module) or not model.training or not torch.is_grad_enabled():
        return False
    return any(tensor.requires_grad for tensor in [*model.parameters(), *tree.tensors(inputs)])


def training_step(target: Callable[..., Any], model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[[], Any]:
    """One step of `target` as a function without arguments; gradients of both modules and of the inputs start from None.

    The step raises no_loss when the output holds no loss. It returns the output, its graph already freed.
    """
    owners = [item for item in (target, model) if isinstance(item, torch.nn.Module)]
    found = [tensor for owner in owners for tensor in owner.parameters()] + tree.tensors((args, kwargs))
    learned = list({id(tensor): tensor for tensor in found if tensor.requires_grad and tensor.is_leaf}.values())

    def call() -> Any:
        for tensor in learned:
            tensor.grad = None
        output = target(*args, **kwargs)
        loss = find_loss(output)
        if loss is None:
            raise workload_failed("no_loss", "the training step returned no scalar loss that requires a gradient",
                                  fix="return the loss: one number that requires a gradient")
        loss.backward()
        return output

    return call

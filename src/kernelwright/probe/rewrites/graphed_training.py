"""A training step's forward and backward as two CUDA graphs: one launch from the host for each in place of hundreds.

Gradients are copied out of the graphs' memory, so that they can be kept and accumulated; the weights are read where they lie.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .trees import leaves, map_tensors, tensors_of


def graphed_training(model: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[..., Any]:
    """The model through torch.cuda.make_graphed_callables. Outputs are clones; their backward fills the model's own gradients."""
    if not isinstance(model, torch.nn.Module) or not torch.is_grad_enabled():
        raise NotImplementedError("not applicable: capturing a backward pass needs an nn.Module under grad mode")
    given = tensors_of(args, kwargs)
    if any(tensor.requires_grad for tensor in given):
        raise NotImplementedError("not applicable: an input requires a gradient")
    learned = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    if not learned:
        raise NotImplementedError("not applicable: the model has nothing to learn")
    names, weights = list(learned), list(learned.values())
    made: dict[str, Any] = {}

    class Handover(torch.autograd.Function):  # type: ignore[misc]
        """The weights go in as they are; their gradients come out as copies."""

        @staticmethod
        def forward(_context: Any, *values: torch.Tensor) -> Any:
            return tuple(value.view_as(value) for value in values)

        @staticmethod
        def backward(_context: Any, *gradients: torch.Tensor | None) -> Any:
            copies = [None if gradient is None else torch.empty_like(gradient) for gradient in gradients]
            torch._foreach_copy_([copy for copy in copies if copy is not None], [own for own in gradients if own is not None])
            return tuple(copies)

    def flat(*values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        rest = iter(values[len(weights):])
        own_args, own_kwargs = map_tensors(lambda _tensor: next(rest), (args, kwargs))
        output = torch.func.functional_call(model, dict(zip(names, values, strict=False)), own_args, own_kwargs)
        made["output"] = map_tensors(lambda _tensor: torch.empty(0), output)  # its nest, to be filled at each call
        return tuple(leaf for _path, leaf in leaves(output) if isinstance(leaf, torch.Tensor))

    inputs = tuple(tensor.detach().clone() for tensor in given)
    state = [(buffer, buffer.detach().clone()) for buffer in model.buffers()]
    random_state = torch.cuda.get_rng_state() if weights[0].is_cuda else None
    try:
        graphed = torch.cuda.make_graphed_callables(flat, (*weights, *inputs), allow_unused_input=True)
    except RuntimeError as error:
        raise NotImplementedError(f"not applicable: the step can't be captured ({error})") from error
    if any(tensor._version for tensor in inputs):
        raise NotImplementedError("not applicable: the call changes its inputs in place, and the graph works on copies of them")
    with torch.no_grad():
        for buffer, before in state:  # the steps that warmed up moved running statistics on
            buffer.copy_(before)
    if random_state is not None:
        torch.cuda.set_rng_state(random_state)

    def call(*args: Any, **kwargs: Any) -> Any:
        outputs = iter(graphed(*Handover.apply(*weights), *tensors_of(args, kwargs)))
        return map_tensors(lambda _tensor: next(outputs).clone(), made["output"])

    call.__dict__["reads"] = model  # the graphs have addresses of its buffers: they must live as long
    return call

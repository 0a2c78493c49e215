"""One call captured into a CUDA graph and replayed: the host launches once instead of once a kernel (works for cuDNN's LSTM too)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch

from .trees import leaves, map_tensors, tensors_of


def cuda_graph(
    model: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], result: Callable[[torch.Tensor], torch.Tensor] = torch.clone,
) -> Callable[..., Any]:
    """Replays the captured call on copies of the inputs; returns clones, so that results outlive the next call.

    The copies take the inputs' values in the dtypes of args and kwargs; result: what an output is copied out with.
    The weights are read where they lie. Random numbers go on from the generator's state at each call, as without a graph.
    """
    given = tensors_of(args, kwargs)
    if not all(tensor.is_cuda for tensor in given):
        raise NotImplementedError("not applicable: an input is not on the GPU, and a CUDA graph can't read it")
    fixed_args, fixed_kwargs = map_tensors(lambda tensor: tensor.detach().clone(), (args, kwargs))
    buffers = tensors_of(fixed_args, fixed_kwargs)
    shapes = [buffer.shape for buffer in buffers]
    random_state = torch.cuda.get_rng_state()
    # Warm-up on a side stream, as capture demands: libraries choose their algorithms and workspaces now.
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side), torch.no_grad():
        for _ in range(3):
            model(*fixed_args, **fixed_kwargs)
    torch.cuda.current_stream().wait_stream(side)

    def bits(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.detach().contiguous().view(-1).view(torch.uint8)

    if not all(torch.equal(bits(buffer), bits(tensor)) for buffer, tensor in zip(buffers, given, strict=True)):
        raise NotImplementedError("not applicable: the call changes its inputs in place, and the graph works on copies of them")
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    try:
        with torch.no_grad(), torch.cuda.graph(graph):
            captured = model(*fixed_args, **fixed_kwargs)
    except RuntimeError as error:  # a synchronisation, a copy from pageable memory or a value read by the host
        with contextlib.suppress(RuntimeError), torch.cuda.graph(torch.cuda.CUDAGraph()):
            torch.zeros(1, device="cuda")  # the generator of random numbers still waits for a capture to end: this one does
        raise NotImplementedError(f"not applicable: the call can't be captured ({error})") from error
    torch.cuda.set_rng_state(random_state)
    plain = (torch.Tensor, bool, int, float, str, type(None))
    strange = [type(leaf).__name__ for _path, leaf in leaves(captured) if not isinstance(leaf, plain)]
    if strange:
        raise NotImplementedError(f"not applicable: can't copy an output of type {strange[0]}")

    def call(*args: Any, **kwargs: Any) -> Any:
        values = tensors_of(args, kwargs)
        if [value.shape for value in values] != shapes:
            raise ValueError("the graph was captured for inputs of other shapes")
        if len(buffers) > 1:
            torch._foreach_copy_(buffers, values)  # few launches for many inputs
        elif buffers:
            buffers[0].copy_(values[0])
        graph.replay()
        # A clone reads and writes every output once more, which tells where outputs are large (logits of a language model). Memory that
        # takes turns would spare it, but only the caller knows when it has done with a result, on other streams above all; so results are
        # cloned, and where that costs more than the launches saved the search keeps the call without the graph.
        return map_tensors(result, captured)

    call.__dict__["reads"] = model, fixed_args, fixed_kwargs  # the graph has addresses: what lies there must live as long as it does
    return call

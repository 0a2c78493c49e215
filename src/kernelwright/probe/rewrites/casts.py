"""Single layers in a 16-bit type, islands of float32 between them: which ones is measured, layer by layer."""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Callable, Iterable
from typing import Any

import torch

from .trees import leaves, map_tensors
from .twins import own_tensors, twin_of, with_parts

HEADROOM = 16.0
"""float16 is used only where inputs and outputs of this call stay that far below its largest number, 65504."""
LARGEST_ERROR = 0.02
"""Relative error of one layer above which it stays float32. Rounding operands to bfloat16 gives about 0.003, to float16 0.0004."""
WORTH = 1.03
"""A layer must be this much faster in the narrow type: the timing's own noise."""
CONVOLUTION_LAYERS = (torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.Conv3d,
                      torch.nn.ConvTranspose1d, torch.nn.ConvTranspose2d, torch.nn.ConvTranspose3d)


def with_attributes_of(layer: torch.nn.Module, new: torch.nn.Module) -> None:
    """Gives a module the plain attributes of the layer whose place it takes, but for those it has: models read fc.out_features."""
    for name, value in {**vars(layer), **layer._parameters}.items():
        parts = value if isinstance(value, tuple) else (value,)
        if not hasattr(new, name) and all(part is None or isinstance(part, (int, float, str)) for part in parts):
            setattr(new, name, value)


class NarrowLayer(torch.nn.Module):  # type: ignore[misc]
    """A layer with its weights, inputs and computation in a narrow type; its outputs go back to float32."""

    def __init__(self, layer: torch.nn.Module, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype, self.inner = dtype, copy.deepcopy(layer).to(dtype).requires_grad_(False)
        self.inner._forward_pre_hooks.clear()  # those that look for layers while the model is read
        for name, parameter in layer.named_parameters(recurse=False):
            self.register_parameter(name, parameter)  # others may read them: tied weights
        self.training = layer.training
        with_attributes_of(layer, self)

    def narrow(self, value: Any) -> Any:
        """The same nest with its float32 tensors in the narrow type."""
        return map_tensors(lambda tensor: tensor.to(self.dtype) if tensor.dtype == torch.float32 else tensor, value)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        args, kwargs = self.narrow((args, kwargs))
        return map_tensors(lambda tensor: tensor.float() if tensor.dtype == self.dtype else tensor, self.inner(*args, **kwargs))


def layer_seconds(function: Callable[[], Any], *, cuda: bool, calls: int = 10) -> float:
    """Time of one call, median of three batches; on a GPU the device's, queued behind a pause so that launches cost nothing."""
    found = []
    for _ in range(3):
        if cuda:
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            torch.cuda._sleep(10_000_000)
            start.record()
        began = time.perf_counter()
        for _ in range(calls):
            function()
        if cuda:
            end.record()
            end.synchronize()
        found.append(start.elapsed_time(end) / 1e3 / calls if cuda else (time.perf_counter() - began) / calls)
    return float(statistics.median(found))


def narrow_is_faster(layer: torch.nn.Module, narrow: NarrowLayer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether the layer itself, without the casts around it (a compiler fuses those), is faster in the narrow type."""
    less_args, less_kwargs = narrow.narrow((args, kwargs))

    def wide() -> Any:
        return layer(*args, **kwargs)

    def less() -> Any:
        return narrow.inner(*less_args, **less_kwargs)

    return is_worth(less, wide, args, kwargs)


def whole_is_faster(layer: torch.nn.Module, other: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether the other is faster than the layer, each with all that its call does, casts too."""
    return is_worth(lambda: other(*args, **kwargs), lambda: layer(*args, **kwargs), args, kwargs)


def is_worth(new: Callable[[], Any], old: Callable[[], Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether the new way is faster by more than noise, where the layer's inputs are."""
    cuda = any(leaf.is_cuda for _path, leaf in leaves((args, kwargs)) if isinstance(leaf, torch.Tensor))
    old(), new()
    return bool(layer_seconds(new, cuda=cuda) * WORTH < layer_seconds(old, cuda=cuda))


def narrow_is_close(layer: torch.nn.Module, narrow: NarrowLayer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether the narrow layer gives about the same, and float16's range has room for what goes in and comes out."""
    expected, got = layer(*args, **kwargs), narrow(*args, **kwargs)
    for (_path, one), (_other, two) in zip(leaves(expected), leaves(got), strict=True):
        if isinstance(one, torch.Tensor) and one.is_floating_point():
            error = float((one.double() - two.double()).norm() / one.double().norm().clamp_min(1e-30))
            if not error <= LARGEST_ERROR:
                return False
    values = [leaf for _path, leaf in leaves((args, kwargs, expected)) if isinstance(leaf, torch.Tensor) and leaf.is_floating_point()]
    largest = max((float(value.abs().max()) for value in values if value.numel()), default=0.0)
    return bool(getattr(narrow, "dtype", None) != torch.float16 or largest * HEADROOM <= torch.finfo(torch.float16).max)


def narrow_layers(
    model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], dtype: torch.dtype, faster: Callable[..., bool] = narrow_is_faster,
) -> torch.nn.Module:
    """A copy of the model (float32 weights shared) whose linear, convolution and recurrent layers compute in dtype where that is faster."""
    nn = torch.nn
    kinds = {nn.Linear, *CONVOLUTION_LAYERS, nn.RNN, nn.LSTM, nn.GRU}
    twin = sharing_twin(model)
    found = with_layers(twin, args, kwargs, plain_layers(twin, kinds), lambda layer: NarrowLayer(layer, dtype), faster)
    if found is None:
        raise NotImplementedError(f"not applicable: no layer is faster in {dtype} and close to float32")
    return found


def sharing_twin(model: Any) -> torch.nn.Module:
    """A copy of the modules that has the model's own weights and buffers."""
    if not isinstance(model, torch.nn.Module):
        raise NotImplementedError("not applicable: only an nn.Module has layers to cast")
    return twin_of(model, own_tensors(model))


def plain_layers(model: torch.nn.Module, kinds: set[type]) -> list[torch.nn.Module]:
    """The layers of just these kinds whose weights are float32, that nobody hooks, and that compute what their type says."""
    return [layer for layer in model.modules() if type(layer) in kinds and "forward" not in vars(layer)
            and not (layer._forward_hooks or layer._forward_pre_hooks)
            and all(parameter.dtype == torch.float32 for parameter in layer.parameters())]


def with_layers(
    model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], layers: Iterable[torch.nn.Module],
    make: Callable[[torch.nn.Module], Any], faster: Callable[..., bool],
) -> torch.nn.Module | None:
    """The model with each of these layers replaced by what is made of it, where that is close and faster on this call's own tensors; None
    where none is."""
    calls: dict[torch.nn.Module, tuple[Any, ...]] = {}
    chosen: dict[torch.nn.Module, torch.nn.Module] = {}

    def look(layer: torch.nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        if layer in calls:
            return
        calls[layer] = ()
        narrow = make(layer)
        if narrow_is_close(layer, narrow, given, named) and faster(layer, narrow, given, named):
            chosen[layer] = narrow

    watches = [layer.register_forward_pre_hook(look, with_kwargs=True) for layer in layers]
    with torch.no_grad():
        model(*args, **kwargs)
    for watch in watches:
        watch.remove()
    if not chosen:
        return None
    return with_parts(model, chosen)

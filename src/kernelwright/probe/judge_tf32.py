"""The reference with other roundings of its weights to TF32 (the parent's side: judge/tf32_luck.py)."""

from __future__ import annotations

import re
from typing import Any

import torch

from .judge_reference import NotApplicable, copied, need_tf32, run_copy
from .judge_tensors import Leaf
from .loaders import Inputs, LoadedWorkload
from .rewrites.float32_flags import all_as, float32_flags, under_flags
from .rewrites.unwrap_compiled import uncompiled

LAYERS = (torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.Conv3d, torch.nn.ConvTranspose1d, torch.nn.ConvTranspose2d, torch.nn.ConvTranspose3d,
          torch.nn.RNNBase, torch.nn.Linear)
FACTOR = re.compile(r"weight|weight_(ih|hh|hr)_l\d+(_reverse)?")
"""Names of what such a layer multiplies by."""
NOT_FLOAT32 = 2.0**-15
"""3e-5 of an output's norm: with operands rounded to TF32 products err by 2e-4 to 4e-4 of it, float32 sums in another order by 1e-6."""
SAME_AGAIN = NOT_FLOAT32 / 8
"""A layer that is called again gives the same within this share of its norm."""
TF32_DROPPED = 2**13 - 1
"""Bits of a float32's mantissa that TF32 has not."""


def tf32_weights(workload: LoadedWorkload, inputs: Inputs, seed: int) -> list[str]:
    """Names of the float32 weights of convolutions, recurrent and linear layers that compute in TF32: in a call of a copy their outputs
    differ from what they give without it by more than NOT_FLOAT32. Whether the flags allow it does not say so: a library has kernels
    without tensor cores for some shapes.

    Left out are layers whose forward alone does not give their output again (random numbers, state, arguments changed in place), weights
    that others are computed from (weight_norm's and spectral_norm's: rounding those is not what TF32 does), and those that an embedding
    shares, which reads them unrounded. Raises NotApplicable.
    """
    need_tf32(workload)
    duplicate = _apart(workload)
    names = {id(one): name for name, one in duplicate.named_parameters()}
    read = {id(one) for module in duplicate.modules() if isinstance(module, torch.nn.Embedding | torch.nn.EmbeddingBag)
            for one in module.parameters(recurse=False)}
    seen: set[int] = set()
    found: list[str] = []

    def look(layer: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        own = [one for name, one in layer.named_parameters(recurse=False) if FACTOR.fullmatch(name) and one.dtype == torch.float32
               and id(one) in names and id(one) not in read | seen]
        if not own:
            return
        seen.update(id(one) for one in own)
        with torch.no_grad():
            given, again = _first_tensor(output), _first_tensor(layer.forward(*args, **kwargs))
            with under_flags(all_as(float32_flags(), tf32=False)):
                exact = _first_tensor(layer.forward(*args, **kwargs))
            size, moved, differs = (torch.linalg.vector_norm(one) for one in (exact, given - again, given - exact))
            if moved <= SAME_AGAIN * size and differs > NOT_FLOAT32 * size:
                found.extend(names[id(one)] for one in own)

    for module in duplicate.modules():
        if isinstance(module, LAYERS):
            module.register_forward_hook(look, prepend=True, with_kwargs=True)  # before the user's own, which may change the output
    run_copy(workload, duplicate, inputs, None, seed, [])
    return found


def rounded_run(
    workload: LoadedWorkload, inputs: Inputs, seed: int, written: list[str], names: list[str], noise_seed: int,
) -> list[Leaf]:
    """The reference with these weights (tf32_weights) rounded to TF32 beforehand, each up or down at random: another draw of the errors
    that those roundings make. Raises NotApplicable."""
    if not names:
        raise NotApplicable("no layer's weights are rounded to TF32")
    duplicate = _apart(workload)
    weights = dict(duplicate.named_parameters())
    try:
        with torch.no_grad():
            for number, name in enumerate(names):
                weights[name].copy_(rounded_at_random(weights[name], noise_seed + number))
    except Exception as error:  # no memory for it; what a subclass of tensors raises
        raise NotApplicable(f"the weights can't be rounded: {type(error).__name__}") from error
    return run_copy(workload, duplicate, inputs, None, seed, written)


def _apart(workload: LoadedWorkload) -> torch.nn.Module:
    """A copy of the model whose weights are its own. Raises NotApplicable: a function, or a module that shares them with its copies."""
    duplicate = copied(workload.model, None)
    own = uncompiled(workload.model) or workload.model
    if not isinstance(duplicate, torch.nn.Module) or not isinstance(own, torch.nn.Module):
        raise NotApplicable("a function has no layers")
    try:
        shared = _storages(own) & _storages(duplicate)
    except Exception as error:  # a subclass of tensors without memory of its own
        raise NotApplicable(f"where the weights lie is not known: {type(error).__name__}") from error
    if shared:
        raise NotApplicable("the model's copy shares its weights")
    return duplicate


def _storages(model: torch.nn.Module) -> set[int]:
    """Where the memory of its weights and buffers begins."""
    return {one.untyped_storage().data_ptr() for one in (*model.parameters(), *model.buffers()) if one.numel()}


def _first_tensor(output: Any) -> torch.Tensor:
    """A layer's output; of a recurrent one, which gives its state too, the sequence (packed or not)."""
    while not isinstance(output, torch.Tensor):
        output = output[0]
    return output.detach()


def rounded_at_random(weight: torch.Tensor, seed: int) -> torch.Tensor:
    """A float32 tensor with 10 stored bits of each mantissa kept, rounded up or down at random so that the mean is right: the error's
    variance is twice that of rounding to nearest (ulp**2 / 6 for ulp**2 / 12). Infinities and NaN stay."""
    bits = weight.detach().contiguous().view(torch.int32)
    generator = torch.Generator(device=bits.device).manual_seed(seed)
    dropped = bits & TF32_DROPPED
    up = torch.randint(0, TF32_DROPPED + 1, bits.shape, generator=generator, device=bits.device, dtype=torch.int32) < dropped
    moved = (bits - dropped + up.to(torch.int32) * (TF32_DROPPED + 1)).view(torch.float32)
    return torch.where(torch.isfinite(weight), moved, weight.detach())

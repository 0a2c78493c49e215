"""Whether float32 products, convolutions and recurrent layers may be TF32, through whichever of torch's two interfaces the program uses.

torch 2.9 has fp32_precision beside allow_tf32 and float32_matmul_precision, and refuses to read the older two where they can't say what the
newer one was set to. https://pytorch.org/docs/stable/notes/cuda.html#tensorfloat-32-tf32-on-ampere-and-later-devices
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


def newer_places() -> list[Any]:
    """What has an fp32_precision: products, convolutions, recurrent layers."""
    return [torch.backends.cuda.matmul, torch.backends.cudnn.conv, torch.backends.cudnn.rnn]


def float32_flags() -> tuple[Any, ...]:
    """(products, cuDNN) by the older interface, or (products, convolutions, recurrent layers) by the newer one."""
    try:
        _ = torch.backends.cuda.matmul.allow_tf32  # refuses where the precision below is what was set before the newer one
        return torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    except RuntimeError:
        return tuple(place.fp32_precision for place in newer_places())


def set_float32_flags(flags: tuple[Any, ...]) -> None:
    """Set what `float32_flags` gave; what has its value already is left alone, for it may follow a more general flag."""
    if len(flags) == 2:
        torch.set_float32_matmul_precision(flags[0])
        torch.backends.cudnn.allow_tf32 = flags[1]
        return
    for place, value in zip(newer_places(), flags, strict=True):
        if place.fp32_precision != value:
            place.fp32_precision = value


@contextmanager
def under_flags(flags: tuple[Any, ...]) -> Iterator[None]:
    """These flags inside it, and afterwards those that were there; what nobody had set is so again, and follows a more general flag."""
    before, unset = float32_flags(), unset_products()
    set_float32_flags(flags)
    try:
        yield
    finally:
        set_float32_flags(before)
        for place in unset:
            place.fp32_precision = "none"


def unset_products() -> list[Any]:
    """Of CUDA's and the CPU's products those whose precision nobody has set; none before torch 2.9."""
    places = (torch.backends.cuda.matmul, getattr(torch.backends.mkldnn, "matmul", None))
    return [place for place in places if getattr(place, "fp32_precision", None) == "none"]


def products_as(flags: tuple[Any, ...], tf32: bool) -> tuple[Any, ...]:
    """The same flags with TF32 on or off for products."""
    return (("high" if tf32 else "highest") if len(flags) == 2 else "tf32" if tf32 else "ieee", *flags[1:])


def all_as(flags: tuple[Any, ...], tf32: bool) -> tuple[Any, ...]:
    """The same kind of flags with TF32 on or off for all."""
    return (products_as(flags, tf32)[0], tf32) if len(flags) == 2 else ("tf32" if tf32 else "ieee",) * 3


def products_are_narrow(flags: tuple[Any, ...]) -> bool:
    """Whether float32 products may be less exact than float32."""
    return flags[0] not in ("highest", "ieee", "none")


def convolutions_are_tf32(flags: tuple[Any, ...]) -> bool:
    """Of convolutions."""
    return flags[1] in (True, "tf32")


def recurrent_layers_are_tf32(flags: tuple[Any, ...]) -> bool:
    """Of recurrent layers."""
    return flags[-1] in (True, "tf32")

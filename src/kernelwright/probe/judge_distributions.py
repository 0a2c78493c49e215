"""Other distributions of a workload's inputs: its generator's float tensors, changed where that is safe, under a secret seed."""

from __future__ import annotations

import random
from typing import Any

import torch

from . import tree
from .loaders import Inputs

KINDS = ("small", "large", "shifted", "constant_rows", "mixed", "spikes", "special", "nonfinite")
WIDE = (torch.float32, torch.float64, torch.bfloat16)
"""Dtypes with room for factors of 1000; float16 ends at 65504."""
CHANGED_SHARE = 0.75
"""Each float input is changed with this chance, at least one always."""
DISTINCT_SAMPLE = 4096
SPECIAL_SHARE, ROW_SHARE = 0.1, 0.5
MAX_SPIKES, VALUES_PER_SPIKE, AFTER_FIRST = 8, 5000, 0.9
"""Spikes are few, and mostly not in the first slice, so that a look at some of the values does not show them."""
NONFINITE_PLACES = 3


def span(leaf: torch.Tensor) -> str | None:
    """What the values of a leaf may be: "any", "nonnegative" or "unit" (0 to 1); None where they must stay as they are.

    They stay in integers, masks and constants (two distinct values or fewer), where something is not finite, and in rows that sum to 1.
    """
    return _span(leaf.detach()) if bool(torch.isfinite(leaf).all()) else None


def _span(values: torch.Tensor) -> str | None:
    if values.dtype not in (*WIDE, torch.float16) or not values.numel():
        return None
    flat = values.reshape(-1)
    step = max(1, flat.numel() // DISTINCT_SAMPLE)
    if flat[::step].unique().numel() <= 2:
        return None
    low, high = (float(bound) for bound in torch.aminmax(flat))
    if low < 0:
        return "any"
    if values.dim() and values.shape[-1] > 1 and bool(((values.sum(-1, dtype=torch.float64) - 1).abs() < 1e-2).all()):
        return None
    return "unit" if high <= 1 else "nonnegative"


def transformed(inputs: Inputs, kind: str, seed: int, free: bool) -> tuple[Inputs, dict[str, str]]:
    """The inputs in another distribution, and by path what was done in words; nothing where no leaf can be changed.

    free: nonnegative values may become negative, and values from 0 to 1 may leave that range.
    """
    draw = random.Random(seed)
    spans: dict[int, tuple[str, str]] = {}
    for path, leaf in tree.leaves(inputs):
        found = span(leaf)
        if found is not None and id(leaf) not in spans:
            spans[id(leaf)] = (path, "any" if free else found)
    chosen = {key for key in spans if draw.random() < CHANGED_SHARE} or set(list(spans)[:1])
    done: dict[str, str] = {}

    def change(leaf: torch.Tensor) -> torch.Tensor:
        if id(leaf) not in chosen:
            return leaf
        path, allowed = spans[id(leaf)]
        generator = torch.Generator(device=leaf.device).manual_seed(draw.getrandbits(48))
        values = leaf.detach().clone(memory_format=torch.preserve_format)
        words = _CHANGES[kind](values, allowed, draw, generator)
        if not words:
            return leaf
        done[path] = words
        return values.requires_grad_(leaf.requires_grad)

    with torch.no_grad():
        changed = tree.map_tensors(change, inputs)
    return changed, done


def perturbed(inputs: Inputs, roundoff: float, seed: int, dtype: torch.dtype | None) -> Inputs:
    """Every float leaf x moved by up to roundoff * (|x| + rms(x)), in float64 where dtype says so: how far rounding alone may take it.

    Within the leaf's own smallest and largest value; what `span` says must stay as it is, stays.
    roundoff 0: four units in the last place of the leaf's own dtype, half a one of the 16-bit dtypes, whose sums are kept in float32.
    """
    def move(leaf: torch.Tensor) -> torch.Tensor:
        values = leaf.detach()
        usable = torch.isfinite(values)
        whole = bool(usable.all())
        finite = torch.where(usable, values, values[usable][:1]) if not whole and bool(usable.any()) else values
        if _span(finite) is None:
            return leaf
        eps = torch.finfo(leaf.dtype).eps
        size = roundoff or (4 * eps if leaf.element_size() > 2 else eps / 2)
        generator = torch.Generator(device=leaf.device).manual_seed(seed)
        moved = finite.to(torch.float64, copy=True)
        low, high = torch.aminmax(moved)
        reach = moved.abs().add_(torch.linalg.vector_norm(moved) / moved.numel() ** 0.5).mul_(size)
        noise = torch.rand(moved.shape, generator=generator, device=moved.device, dtype=torch.float64)
        moved.addcmul_(noise.mul_(2).sub_(1), reach).clamp_(low, high)
        if not whole:
            moved = torch.where(usable, moved, values.to(torch.float64))
        return moved.to(dtype or leaf.dtype).requires_grad_(leaf.requires_grad)

    with torch.no_grad():
        return tree.map_tensors(move, inputs)  # type: ignore[no-any-return]


def _places(values: torch.Tensor, share: float, generator: torch.Generator) -> torch.Tensor:
    """A random mask of the values' shape, of one place at least."""
    mask = torch.rand(values.shape, generator=generator, device=values.device) < share
    if not bool(mask.any()):
        mask.view(-1)[:1] = True
    return mask


def _scale(values: torch.Tensor, factor: float) -> str:
    values.mul_(factor)
    return f"x {factor:.3g}"


def _small(values: torch.Tensor, _allowed: str, draw: random.Random, _generator: torch.Generator) -> str:
    return _scale(values, 10 ** -draw.uniform(2.5, 3.5) if values.dtype in WIDE else 2 ** -draw.uniform(2, 5))


def _large(values: torch.Tensor, allowed: str, draw: random.Random, generator: torch.Generator) -> str:
    if allowed == "unit":
        small = _small(values, allowed, draw, generator)
        values.neg_().add_(1)
        return f"1 - ({small})"
    sign = draw.choice((-1, 1)) if allowed == "any" else 1
    return _scale(values, sign * (10 ** draw.uniform(2.5, 3.3) if values.dtype in WIDE else 2 ** draw.uniform(3, 6)))


def _shifted(values: torch.Tensor, allowed: str, draw: random.Random, _generator: torch.Generator) -> str:
    if allowed == "unit":
        offset = draw.uniform(0.25, 0.5)
        values.mul_(0.5).add_(offset)
        return f"x 0.5 + {offset:.3g}"
    spread = float(values.double().std()) if values.numel() > 1 else 1.0
    sign = 1 if allowed != "any" else -1 if float(values.min()) >= 0 else draw.choice((-1, 1))  # where nothing was negative, some is now
    offset = sign * draw.uniform(1.5, 4.0) * (spread or 1.0)
    values.add_(offset)
    return f"+ {offset:.3g}"


def _constant_rows(values: torch.Tensor, _allowed: str, draw: random.Random, generator: torch.Generator) -> str:
    if values.dim() < 2 or values.shape[-1] < 2:
        return ""
    rows = _places(values[..., 0], ROW_SHARE, generator)
    column = draw.randrange(values.shape[-1])
    values.copy_(torch.where(rows.unsqueeze(-1), values[..., column : column + 1].clone(), values))
    return f"{int(rows.sum())} of {rows.numel()} rows constant"


def _mixed(values: torch.Tensor, allowed: str, _draw: random.Random, generator: torch.Generator) -> str:
    room = 3.0 if values.dtype in WIDE else 1.3
    low, high = (-2 * room, 0.0) if allowed == "unit" else (-room, room)
    powers = torch.rand(values.shape, generator=generator, device=values.device) * (high - low) + low
    values.mul_((10.0**powers).to(values.dtype))
    return f"each x 10^{low:.2g} to 10^{high:.2g}"


def _spikes(values: torch.Tensor, allowed: str, draw: random.Random, generator: torch.Generator) -> str:
    count = max(1, min(MAX_SPIKES, values.numel() // VALUES_PER_SPIKE))
    first = values[0].numel() if draw.random() < AFTER_FIRST and values.dim() and values.shape[0] > 1 else 0
    places = torch.randint(first, values.numel(), (count,), generator=generator, device=values.device)
    flat = values.reshape(-1)
    factor = 10**3 if values.dtype in WIDE else 20
    if allowed == "unit":
        flat[places] = draw.choice((0.0, 1.0))
    else:
        flat[places] = (flat[places].abs() + flat.double().square().mean().sqrt().to(flat.dtype)) * factor
    values.copy_(flat.reshape(values.shape))
    return f"{count} of {values.numel()} {'at the end of the range' if allowed == 'unit' else f'x {factor}'}"


def _special(values: torch.Tensor, allowed: str, draw: random.Random, generator: torch.Generator) -> str:
    tiny = torch.finfo(values.dtype).tiny * draw.uniform(0.1, 0.9)
    given = [0.0, -0.0, tiny, -tiny] if allowed == "any" else [0.0, tiny]
    for value in given:
        values.masked_fill_(_places(values, SPECIAL_SHARE / len(given), generator), value)
    return f"a tenth zeros{', negative zeros' if allowed == 'any' else ''} and denormals"


def _nonfinite(values: torch.Tensor, allowed: str, draw: random.Random, generator: torch.Generator) -> str:
    if allowed == "unit":
        return ""
    given = [float("inf"), -float("inf"), float("nan")] if allowed == "any" else [float("inf"), float("nan")]
    given = draw.choice([given, [value for value in given if value == value]])
    places = torch.randint(0, values.numel(), (NONFINITE_PLACES * len(given),), generator=generator, device=values.device)
    flat = values.reshape(-1)
    for index, value in enumerate(given):
        flat[places[index :: len(given)]] = value
    values.copy_(flat.reshape(values.shape))
    return f"{', '.join(str(value) for value in given)} in {places.numel()} places"


_CHANGES: dict[str, Any] = {"small": _small, "large": _large, "shifted": _shifted, "constant_rows": _constant_rows, "mixed": _mixed,
                            "spikes": _spikes, "special": _special, "nonfinite": _nonfinite}

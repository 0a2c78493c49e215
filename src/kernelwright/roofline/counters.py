"""Hardware counters by role: which ncu metrics to ask a chip for, and what a report's metrics say (knowledge/counters.yaml).

A role ("dram_read_bytes", "occupancy_pct", "stall_barrier_pct") has one meaning on every chip; its metric names differ. What a
chip has no counter for, or a report does not hold, is `Abstained(reason)`, never 0.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache

from ..model.base import Abstained
from ..model.counters import CounterSet
from ..model.profile import Kernel
from .formulas import FORMULAS
from .knowledge import Chip, Role, Way, counter_knowledge

Raw = Mapping[str, float]
"""Metrics of one launch by their ncu names."""
ChipName = str | int | tuple[int, int] | None
"""A chip ("gh100") or a compute capability ("9.0", "sm_90", 90, (9, 0)); None: not known."""

LIMITS = {"limit_registers": "registers", "limit_shared_mem": "shared memory", "limit_warps": "block size", "limit_blocks": "block slots",
          "limit_barriers": "barriers"}
"""Role -> what limits the occupancy when it is the smallest, in words. The warp slots bind through the block size."""
PIPES = ("tensor_pct", "fma_pct", "alu_pct", "fp64_pct")
"""The arithmetic pipes whose busiest one is Compute%."""
LEAST_COVERED = 0.9
"""Counters are collected for at least 95% of kernel time by default; with less than this, a mean over a group would be a guess."""


def chip_of(which: ChipName) -> str | None:
    """The chip of `ncu --query-metrics` that stands for a chip name or compute capability; None when it is not known.

    A capability that is not listed takes the newest listed one of the same major version below it (10.1 -> 10.0).
    """
    if which is None:
        return None
    chips = counter_knowledge().chips
    if isinstance(which, str) and which in chips:
        return which
    asked = _capability(which)
    if asked is None:
        return None
    listed = {_capability(text): name for name, chip in chips.items() for text in chip.capabilities}
    below = [known for known in listed if known is not None and known[0] == asked[0] and known <= asked]
    return listed[max(below)] if below else None


def metric_names(which: ChipName, counter_set: CounterSet = "default") -> tuple[str, ...]:
    """The ncu metrics to collect for a set, each once, in the roles' order; () for a chip that is not known."""
    chip = chip_of(which)
    if chip is None:
        return ()
    names: dict[str, None] = {}
    for role in counter_knowledge().roles.values():
        if counter_set == "full" or role.set == "default":
            way = next((way for way in role.ways if not way.only_read and way.is_for(chip)), None)
            names.update(dict.fromkeys(way.names if way is not None else ()))
    return tuple(names)


def roles(counter_set: CounterSet = "full") -> tuple[str, ...]:
    """The names of the roles of a set."""
    return tuple(name for name, role in counter_knowledge().roles.items() if counter_set == "full" or role.set == "default")


def value(role: str, raw: Raw, cc: ChipName = None) -> float | Abstained:
    """A role's figure of one launch in the role's unit, by the first way whose metrics `raw` has. KeyError for an unknown role.

    cc: chip or compute capability; None tries the ways of every chip.
    """
    known, chip = counter_knowledge().roles[role], chip_of(cc)
    for way in known.ways:
        if chip is not None and not way.is_for(chip):
            continue
        figure = _by(way, raw, _warps_per_sm(raw, chip))
        if figure is not None:
            return _bounded(figure, known)
    return Abstained(name=role, reason=_why_not(known, chip))


def known(role: str, raw: Raw, cc: ChipName = None) -> float | None:
    """`value`, with None for n/a."""
    figure = value(role, raw, cc)
    return None if isinstance(figure, Abstained) else figure


def unavailable(which: ChipName, counter_set: CounterSet = "default") -> dict[str, str]:
    """Role -> why this chip has no such counter."""
    chip = chip_of(which)
    if chip is None:
        return {name: _unknown_chip() for name in roles(counter_set)}
    every = counter_knowledge().roles
    return {name: _why_not(every[name], chip) for name in roles(counter_set)
            if not any(way.is_for(chip) and not way.only_read for way in every[name].ways)}


def limiter(raw: Raw, cc: ChipName = None) -> tuple[str, ...] | Abstained:
    """What keeps more blocks off an SM, in words ("registers", "shared memory", "block size", ...); several when they tie.

    () when the launch can fill every warp slot.
    """
    limits = {words: figure for role, words in LIMITS.items() if (figure := known(role, raw, cc)) is not None}
    theoretical = value("theoretical_occupancy_pct", raw, cc)
    if isinstance(theoretical, Abstained) or not limits:
        return Abstained(name="limiter", reason="the launch's limits were not collected")
    least = min(limits.values())
    return () if theoretical >= 100.0 else tuple(words for words, figure in limits.items() if figure == least)


@cache
def chips() -> dict[str, Chip]:
    """The chips with counter names."""
    return dict(counter_knowledge().chips)


def _by(way: Way, raw: Raw, warps_per_sm: int | None) -> float | None:
    figures = [figure for name in way.names if (figure := raw.get(name)) is not None and math.isfinite(figure)]
    if len(figures) != len(way.names):
        return None
    if way.formula is not None:
        return FORMULAS[way.formula](figures, raw, warps_per_sm)
    if way.ratio is not None:
        return figures[0] / figures[1] * way.times if figures[1] else (0.0 if figures[0] == 0 else None)
    if way.max is not None:
        return max(figures)
    return sum(figure * weight for figure, weight in zip(figures, way.weights, strict=True))


def _bounded(figure: float, role: Role) -> float:
    return figure if role.bound is None else min(max(figure, role.bound[0]), role.bound[1])


def _warps_per_sm(raw: Raw, chip: str | None) -> int | None:
    """Warps that fit on an SM: the report's own word, else the chip's, else from resident warps as a number and as a share."""
    said = raw.get("device__attribute_max_warps_per_multiprocessor")
    if said is not None and said > 0:
        return int(said)
    if chip is not None:
        return counter_knowledge().chips[chip].warps_per_sm
    warps, share_pct = raw.get("sm__warps_active.avg.per_cycle_active"), raw.get("sm__warps_active.avg.pct_of_peak_sustained_active")
    return round(100.0 * warps / share_pct) if warps is not None and share_pct else None


def _why_not(role: Role, chip: str | None) -> str:
    if chip is not None and not any(way.is_for(chip) and not way.only_read for way in role.ways):
        return f"{chip} (sm_{_least(chip)}) has no such counter"
    return "not collected" if role.set == "default" else "not collected (--counters full has it)"


def _least(chip: str) -> str:
    return counter_knowledge().chips[chip].capabilities[0].replace(".", "")


def _unknown_chip() -> str:
    known_chips = ", ".join(f"sm_{_least(chip)}" for chip in counter_knowledge().chips)
    return f"no counter names are known for this GPU (known: {known_chips})"


def _capability(which: ChipName) -> tuple[int, int] | None:
    if isinstance(which, tuple):
        return which
    if isinstance(which, int):
        return divmod(which, 10)
    match = re.fullmatch(r"(?:sm_)?(\d+)\.?(\d)[a-z]?", which or "")
    return (int(match[1]), int(match[2])) if match else None


def names_of(counter_roles: Iterable[str], which: ChipName) -> tuple[str, ...]:
    """The metrics that some roles need on a chip, each once."""
    chip, every = chip_of(which), counter_knowledge().roles
    found: dict[str, None] = {}
    for role in counter_roles:
        way: Sequence[str] = next((way.names for way in every[role].ways if chip and not way.only_read and way.is_for(chip)), ())
        found.update(dict.fromkeys(way))
    return tuple(found)


def weighted(figure: Callable[[Raw], float | None], kernels: Iterable[Kernel]) -> float | None:
    """Mean of a figure over kernels, weighted by their durations; None when less than LEAST_COVERED of their time has it.

    Copies and fills are no kernels and are left out.
    """
    total_ns, known_ns, weighed = 0, 0, 0.0
    inherited: dict[str, float | None] = {}  # launches of one measured launch have the same figure, and there can be 100,000 of them
    for kernel in kernels:
        if kernel.category != "kernel":
            continue
        total_ns += kernel.duration_ns
        source = kernel.metrics.measured_kernel_id
        if source is None:
            one = figure(kernel.metrics.raw) if kernel.metrics.raw else None
        elif source in inherited:
            one = inherited[source]
        else:
            one = inherited[source] = figure(kernel.metrics.raw)
        if one is not None:
            known_ns, weighed = known_ns + kernel.duration_ns, weighed + one * kernel.duration_ns
    return weighed / known_ns if known_ns > 0 and known_ns >= LEAST_COVERED * total_ns else None


def mean(role: str, kernels: Iterable[Kernel], cc: ChipName = None) -> float | None:
    """A role over kernels as `weighted` does it."""
    return weighted(lambda raw: known(role, raw, cc), kernels)


def busiest_pipe_pct(raw: Raw, cc: ChipName = None) -> float | None:
    """Compute%: the busiest of the tensor, FMA, ALU and FP64 pipes; None unless all are known."""
    pipes = [known(pipe, raw, cc) for pipe in PIPES]
    return None if None in pipes else max(pipe for pipe in pipes if pipe is not None)


def covered_pct(kernels: Sequence[Kernel]) -> float | None:
    """Share of the kernels' time whose launches carry counters, %; None without kernels."""
    mine = [kernel for kernel in kernels if kernel.category == "kernel"]
    time_ns = sum(kernel.duration_ns for kernel in mine)
    return 100.0 * sum(kernel.duration_ns for kernel in mine if kernel.metrics.raw) / time_ns if time_ns > 0 else None


def total(role: str, kernels: Iterable[Kernel], cc: ChipName = None) -> float | None:
    """Sum of a role over kernels; None when some kernel lacks it, or there is none."""
    figures = [known(role, kernel.metrics.raw, cc) for kernel in kernels if kernel.category == "kernel"]
    return None if not figures or None in figures else sum(figure for figure in figures if figure is not None)

"""What the documents of mode ncu show: kernels, the hottest lines and instructions, stall reasons, quantities with their unit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath, PureWindowsPath

from ..pipeline.ncu_rules import group_name, groups
from ..readers.ncu_instructions import EXECUTED
from ..readers.ncu_records import Instruction, KernelDetails, Line
from ..roofline.ncu_knowledge import busiest_pipe, counter, ncu_knowledge
from .text import NA

FULL_PCT = 99.95
"""Prints as 100.0%."""


@dataclass(frozen=True)
class KernelRow:
    """One kernel (all its launches) in the table of report.md; figures of its heaviest launch, time of all."""

    rank: int
    """From 1, by time; other tables name kernels by it too: names that are cut can look alike."""
    name: str
    launches: int
    time_ns: float | None
    share_pct: float | None
    pipe: str
    """"FMA pipe 64.9%"."""
    tc_pct: float | None
    dram_pct: float | None
    l2_hit_pct: float | None
    occupancy_pct: float | None
    theoretical_pct: float | None
    limiter: str
    registers: float | None


@dataclass(frozen=True)
class Hot:
    """One hot place. share_pct: of all captured time, kernel_pct: of its kernel's."""

    kernel: str
    where: str
    """"file.cu:12", or the offset of an instruction."""
    share_pct: float | None
    kernel_pct: float
    samples: int
    stalls: str
    text: str
    """The source line, or the instruction."""


def kernel_rows(launches: Sequence[KernelDetails]) -> list[KernelRow]:
    """The kernel with the most time first."""
    timed = all(kernel.duration_ns is not None for kernel in launches)
    whole = sum(kernel.duration_ns or 0.0 for kernel in launches)
    rows = []
    for rank, (name, held) in enumerate(groups(launches).items(), 1):
        first, time_ns = held[0].metrics, sum(kernel.duration_ns or 0.0 for kernel in held)
        pipe = busiest_pipe(first)
        rows.append(KernelRow(
            rank=rank, name=name, launches=len(held), time_ns=time_ns if timed else None,
            share_pct=100 * time_ns / whole if timed and whole > 0 else None,
            pipe=f"{pipe[0].removesuffix(' pipe')} {pipe[1]:.1f}" if pipe else NA,
            tc_pct=counter("tensor", first), dram_pct=counter("dram", first), l2_hit_pct=counter("l2_hit", first),
            occupancy_pct=counter("occupancy", first), theoretical_pct=counter("theoretical_occupancy", first),
            limiter=occupancy_limiter(first), registers=counter("registers", first)))
    return rows


def occupancy_limiter(metrics: Mapping[str, float]) -> str:
    """What keeps more blocks from an SM ("registers", "shared memory", ...); "nothing" where its warps are all in use (theoretical
    occupancy 100%); n/a unless every limit is known."""
    limits = {word: counter(key, metrics) for word, key in (
        ("registers", "limit_registers"), ("shared memory", "limit_shared"), ("warps", "limit_warps"), ("blocks", "limit_blocks"))}
    known = {word: value for word, value in limits.items() if value is not None}
    if len(known) < len(limits):
        return NA
    least, theoretical = min(known.values()), counter("theoretical_occupancy", metrics)
    if theoretical is not None and theoretical >= FULL_PCT:
        return "nothing"
    return ", ".join(word for word, value in known.items() if value == least)


def hottest(launches: Sequence[KernelDetails], count: int) -> list[Hot]:
    """Source lines (where the code has line information, else instructions) with the most samples, weighted by each kernel's time.

    Empty without warp samples.
    """
    whole = sum(kernel.duration_ns or 0.0 for kernel in launches)
    timed = whole > 0 and all(kernel.duration_ns is not None for kernel in launches)
    weights = _weights(launches)
    merged: dict[tuple[str, str], _Place] = {}
    for kernel in launches:
        total = kernel.samples
        if not total:
            continue
        weight = weights[_variant(kernel)] if timed else 1.0
        for place in _places(kernel):
            if place.samples:
                where, text = _where(kernel, place)
                one = merged.setdefault((group_name(kernel), where), _Place(text))
                one.time += weight * place.samples / total
                one.samples += place.samples
                one.stalls.update(place.stalls)
    sampled = {group_name(kernel): 0.0 for kernel in launches if kernel.samples}
    for kernel in launches:
        if kernel.samples:
            sampled[group_name(kernel)] += weights[_variant(kernel)] if timed else 1.0
    ranked = sorted(merged.items(), key=lambda item: (-item[1].time, item[0]))[:count]
    return [Hot(name, where, 100 * one.time / whole if timed else None, 100 * one.time / sampled[name], one.samples,
                stall_words(one.stalls), one.text) for (name, where), one in ranked]


@dataclass
class _Place:
    """One line or instruction, over the variants (grids) of its kernel."""

    text: str
    time: float = 0.0
    """Its share of the samples times ncu's time of the variant, summed."""
    samples: int = 0
    stalls: Counter[str] = field(default_factory=Counter)


def _variant(kernel: KernelDetails) -> tuple[object, ...]:
    return kernel.name, kernel.grid, kernel.block


def _weights(launches: Iterable[KernelDetails]) -> dict[tuple[object, ...], float]:
    """ncu's time by kernel, grid and block: one launch of each was read in depth and stands for them all."""
    weights: dict[tuple[object, ...], float] = {}
    for kernel in launches:
        weights[_variant(kernel)] = weights.get(_variant(kernel), 0.0) + (kernel.duration_ns or 0.0)
    return weights


def _places(kernel: KernelDetails) -> list[Line | Instruction]:
    """Lines, and the instructions that belong to none."""
    return [*kernel.lines(), *(one for one in kernel.instructions if not one.file)]


def _where(kernel: KernelDetails, place: Line | Instruction) -> tuple[str, str]:
    if isinstance(place, Instruction):
        return f"SASS {place.offset:#06x}", place.sass
    return f"{base_name(place.file)}:{place.line}", source_line(kernel, place.file, place.line)


def base_name(path: str) -> str:
    """The last part of a path of any system."""
    return PureWindowsPath(PurePosixPath(path).name).name or "source"


def source_line(kernel: KernelDetails, file: str, line: int) -> str:
    """The text of a source line; "" where the report has not imported it."""
    lines = kernel.sources.get(file, "").split("\n")
    return lines[line - 1].strip() if 0 < line <= len(lines) else ""


def stall_words(stalls: Mapping[str, int], count: int = 2) -> str:
    """The most frequent reasons with their share of the samples: "long_scoreboard 98%, wait 1%"; those below 1% are left out."""
    total = sum(stalls.values())
    if not total:
        return ""
    ranked = sorted(stalls.items(), key=lambda item: (-item[1], item[0]))[:count]
    return ", ".join(f"{reason} {100 * value / total:.0f}%" for reason, value in ranked if 100 * value / total >= 1)


def dominant_stall(stalls: Mapping[str, int]) -> str | None:
    """The most frequent reason that is a stall; None without one."""
    waits = {reason: value for reason, value in stalls.items() if value and reason not in ncu_knowledge().progress}
    return max(sorted(waits), key=lambda reason: waits[reason]) if waits else None


def stall_totals(kernel: KernelDetails) -> dict[str, int]:
    """Samples of the whole kernel by reason."""
    totals: dict[str, int] = {}
    for one in kernel.instructions:
        for reason, value in one.stalls.items():
            totals[reason] = totals.get(reason, 0) + value
    return totals


def excess(counters: Mapping[str, float], kind: str) -> float | None:
    """Global sectors ("sectors") or shared wavefronts ("wavefronts") beyond the ideal; None where not counted."""
    name = {"sectors": "memory_l2_theoretical_sectors_global", "wavefronts": "memory_l1_wavefronts_shared"}[kind]
    return None if name not in counters else max(0.0, counters[name] - counters.get(f"{name}_ideal", 0.0))


def executed(counters: Mapping[str, float]) -> float | None:
    """Warp instructions executed; None where not counted."""
    return counters.get(EXECUTED)

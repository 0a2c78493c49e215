"""Instructions of one launch in a `.ncu-rep`: SASS, PTX, source line, warp samples by stall reason, and counters of each address."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from .ncu_records import Instruction

INSTRUCTION_BYTES = 16
"""Since Volta (sm_70)."""
MOST_INSTRUCTIONS = 100_000
MAX_GAP_BYTES = 4096
"""Longest stretch of code without any count that is still read."""
MAX_SOURCE_CHARACTERS = 2 << 20
MOST_SOURCES = 64
MAX_LINE = 300
SAMPLES = "smsp__pcsamp_sample_count"
STALL = "smsp__pcsamp_warps_issue_stalled_"
NOT_ISSUED = "_not_issued"
EXECUTED = "inst_executed"
COUNTERS = (
    EXECUTED, "thread_inst_executed", "memory_l2_theoretical_sectors_global", "memory_l2_theoretical_sectors_global_ideal",
    "memory_l2_theoretical_sectors_local", "memory_l1_wavefronts_shared", "memory_l1_wavefronts_shared_ideal",
)
"""Instanced metrics that are read beside the samples (section SourceCounters)."""

_ADDRESS = re.compile(r"0x[0-9a-f]{9,16}")


def read_instructions(action: Any) -> tuple[Instruction, ...]:
    """In the order of addresses, from the function's start to its last instruction that is not padding; () without source metrics."""
    reasons = {name.removeprefix(STALL): by_address(action, name) for name in action.metric_names()
               if name.startswith(STALL) and not name.endswith(NOT_ISSUED)}
    counted = {name: by_address(action, name) for name in COUNTERS}
    samples = by_address(action, SAMPLES)
    known = {address for table in (*reasons.values(), *counted.values(), samples) for address in table}
    known |= set(by_address(action, "launch__function_pcs"))
    known.discard(0)
    found = []
    start, end = min(known, default=0), max(known, default=0) + MAX_GAP_BYTES
    for address in _addresses(action, known):
        sass = str(action.sass_by_pc(address))
        info = action.source_info(address)
        stalls = {reason: int(table[address]) for reason, table in reasons.items() if table.get(address)}
        found.append(Instruction(
            offset=address - start, sass=relative(" ".join(sass.split())[:MAX_LINE], start, end),
            ptx=" ".join(str(action.ptx_by_pc(address)).split())[:MAX_LINE],
            file=str(info.file_name())[:1000] if info is not None else "", line=max(0, int(info.line())) if info is not None else 0,
            samples=int(samples[address]) if address in samples else sum(stalls.values()), stalls=stalls,
            counters={name: table[address] for name, table in counted.items() if table.get(address)}))
    while found and found[-1].sass == "NOP" and not found[-1].counters and not found[-1].samples:
        found.pop()
    return tuple(found)


def relative(sass: str, start: int, end: int) -> str:
    """Branch targets as offsets in the function: addresses differ from run to run."""
    def offset(match: re.Match[str]) -> str:
        address = int(match[0], 16)
        return f"{address - start:#x}" if start <= address < end else match[0]

    return _ADDRESS.sub(offset, sass) if start > 0xFFFF_FFFF else sass


def _addresses(action: Any, known: set[int]) -> Iterator[int]:
    """Every address of the function, those that nothing was counted at too."""
    ordered = sorted(known)[:MOST_INSTRUCTIONS]
    for place, address in enumerate(ordered):
        following = ordered[place + 1] if place + 1 < len(ordered) else None
        yield address
        end = address + MAX_GAP_BYTES if following is None or following - address > MAX_GAP_BYTES else following
        for between in range(address + INSTRUCTION_BYTES, end, INSTRUCTION_BYTES):
            if not action.sass_by_pc(between):
                break
            yield between


def by_address(action: Any, name: str) -> dict[int, float]:
    """Instances of a metric by their correlation id; {} when it has none that are addresses."""
    metric = action.metric_by_name(name)
    ids = metric.correlation_ids() if metric is not None and metric.has_correlation_ids() else None
    if ids is None:
        return {}
    found: dict[int, float] = {}
    for place in range(min(metric.num_instances(), ids.num_instances(), MOST_INSTRUCTIONS)):
        address = ids.value(place)
        value = metric.value(place)
        if isinstance(address, int) and isinstance(value, (int, float)):
            found[address] = float(value)
    return found


def read_sources(action: Any) -> dict[str, str]:
    """Imported source files, each cut at MAX_SOURCE_CHARACTERS; files without text are left out."""
    found: dict[str, str] = {}
    files = action.source_files()
    for name in list(files)[:MOST_SOURCES]:
        text = str(files[name])
        if text:
            found[str(name)[:1000]] = text[:MAX_SOURCE_CHARACTERS]
    return found

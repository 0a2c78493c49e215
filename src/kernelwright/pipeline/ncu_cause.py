"""Which memory the hottest place of a kernel waits for: it says which of ncu's rules is the kernel's key issue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from ..readers.ncu_instructions import EXECUTED
from ..readers.ncu_records import Instruction, KernelDetails
from ..roofline.ncu_knowledge import Space, ncu_knowledge

LEAST_SHARE = 0.5
"""Of the place's samples in such stalls, and of its executed memory instructions in that space: with less it has no one cause."""


def hot_action(launches: Sequence[KernelDetails]) -> str | None:
    """What mends the hottest source line of a kernel (without line information: the kernel as a whole); None where nothing tells.

    A wait for data is sampled at the instruction that needs the data, not at the load: so a line's stalls and its memory instructions are
    taken together.
    """
    launch = next((kernel for kernel in launches if kernel.samples), None)
    if launch is None:
        return None
    place = _hottest(launch)
    stalls: Counter[str] = Counter()
    for one in place:
        stalls.update(one.stalls)
    executed = _executed(place)
    for space in ncu_knowledge().spaces.values():
        if _share(stalls, space.stalls) >= LEAST_SHARE and _share(executed, space.opcodes) >= LEAST_SHARE:
            return space.action
    return None


def _hottest(launch: KernelDetails) -> list[Instruction]:
    lines = launch.lines()
    if not lines:
        return list(launch.instructions)
    top = max(lines, key=lambda line: (line.samples, -line.line))
    return [one for one in launch.instructions if (one.file, one.line) == (top.file, top.line)]


def _executed(place: Iterable[Instruction]) -> Counter[str]:
    """Memory opcode -> how often it ran; once each where that was not counted."""
    known: Mapping[str, Space] = ncu_knowledge().spaces
    opcodes = {opcode for space in known.values() for opcode in space.opcodes}
    counts: Counter[str] = Counter()
    for one in place:
        opcode = opcode_of(one.sass).partition(".")[0]
        if opcode in opcodes:
            counts[opcode] += max(1, round(one.counters.get(EXECUTED, 0.0)))
    return counts


def opcode_of(sass: str) -> str:
    """"LDL.64" of "@P0 LDL.64 R4, [R1]"; "" without one."""
    words = sass.split()
    return (words[1] if len(words) > 1 and words[0].startswith("@") else words[0]) if words else ""


def _share(counts: Mapping[str, int], chosen: Iterable[str]) -> float:
    total = sum(counts.values())
    return sum(counts.get(name, 0) for name in chosen) / total if total else 0.0

"""Reads Perfetto traces in tests, knowing of our writer nothing: the wire format, and field numbers as Perfetto publishes them."""

from __future__ import annotations

import gzip
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Fields = dict[int, list[Any]]


def fields(data: bytes) -> Fields:
    """One message: field number -> its values in order (numbers, or bytes)."""
    found: Fields = defaultdict(list)
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            value |= (byte & 0x7F) << shift
            at, shift = at + 1, shift + 7
            if not byte & 0x80:
                assert shift <= 70, "a varint is at most ten bytes"
                return value & (1 << 64) - 1

    while at < len(data):
        key = varint()
        if key & 7 == 0:
            found[key >> 3].append(varint())
        elif key & 7 == 1:
            found[key >> 3].append(int.from_bytes(data[at:at + 8], "little"))
            at += 8
        else:
            assert key & 7 == 2, f"wire type {key & 7}"
            length = varint()
            assert at + length <= len(data)
            found[key >> 3].append(data[at:at + length])
            at += length
    return found


@dataclass
class Slice:
    name: str
    start: int
    track: int
    end: int | None = None
    depth: int = 0
    flows: tuple[int, ...] = ()
    """Flows that leave here."""
    ends: tuple[int, ...] = ()
    """Flows that end here."""
    notes: dict[str, str] = field(default_factory=dict)


@dataclass
class Read:
    tracks: dict[int, tuple[str, int]]
    """uuid -> (name, parent's uuid)."""
    slices: list[Slice]
    instants: list[str]
    counters: dict[str, list[tuple[int, int]]]
    """Track's name -> (ns, value)."""

    def on(self, track: str) -> list[Slice]:
        """Slices of the tracks of this name."""
        return [one for one in self.slices if self.tracks[one.track][0] == track]


def read_perfetto(path: Path) -> Read:
    """The trace as the trace processor would take it: slices nest on their tracks, names are interned before they are used."""
    tracks: dict[int, tuple[str, int]] = {}
    names: dict[int, dict[int, str]] = {2: {}, 3: {}, 29: {}}
    stacks: dict[int, list[Slice]] = defaultdict(list)
    read = Read(tracks, [], [], defaultdict(list))
    last, first = 0, True
    for packet in map(fields, fields(gzip.decompress(path.read_bytes()))[1]):
        assert packet[10] == [1], "every packet belongs to the sequence whose names it uses"
        assert (packet[87] == [1] and packet[13][0] & 1) if first else not packet[87], "the sequence begins with its state cleared"
        first = False
        for descriptor in map(fields, packet[60]):
            tracks[descriptor[1][0]] = (descriptor[2][0].decode(), descriptor[5][0] if descriptor[5] else 0)
        for interned in map(fields, packet[12]):
            for kind, known in names.items():
                known.update((entry[1][0], entry[2][0].decode()) for entry in map(fields, interned[kind]))
        for event in map(fields, packet[11]):
            kind, track, time = event[9][0], event[11][0], packet[8][0]
            assert track in tracks, "a track is described before it is used"
            if kind == 4:
                value = event[30][0]
                read.counters[tracks[track][0]].append((time, value - (1 << 64) if value >> 63 else value))
                continue
            assert packet[13] == [2], "what uses interned names says so"
            if kind == 3:
                read.instants.append(event[23][0].decode())
                continue
            assert time >= last
            last = time
            if kind == 1:
                notes = {names[3][note[1][0]]: names[29][note[17][0]] for note in map(fields, event[4])}
                made = Slice(names[2][event[10][0]], time, track, depth=len(stacks[track]), flows=tuple(event[47]), ends=tuple(event[48]),
                             notes=notes)
                read.slices.append(made)
                stacks[track].append(made)
            else:
                assert kind == 2
                stacks[track].pop().end = time
    assert not any(stacks.values()), "every slice ends"
    return read

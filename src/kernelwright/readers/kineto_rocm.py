"""ROCm's recordings have the grid, block, shared memory and bytes of a launch with the call, not with the kernel."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from ..model.table import EventTable, RowDetails
from .kineto_columns import as_array
from .kineto_events import Event

_INTEGERS = msgspec.json.Decoder(list[int] | None)
Launch = tuple[list[int] | None, list[int] | None, int | None, int]
"""grid, block, shared_bytes, bytes (-1: not said)"""


class LaunchDetails:
    """What calls say of the work that they launch, by correlation id."""

    def __init__(self) -> None:
        self._correlation, self._which = array("q"), array("q")
        self._known: dict[tuple[bytes, bytes, int | None, int], int] = {}
        self._launches: list[Launch] = []

    def add(self, events: Sequence[Event]) -> None:
        """More calls; those of CUDA say nothing. Raises OverflowError, msgspec.DecodeError."""
        for event in events:
            args = event.args
            if args.correlation < 0 or not (args.grid or args.size != -1):
                continue
            size = int(args.size) if isinstance(args.size, int) or (args.size.isdecimal() and len(args.size) < 19) else -1
            key = (bytes(args.grid), bytes(args.block), args.shared_bytes, size if 0 <= size < 1 << 62 else -1)
            if key not in self._known:
                self._launches.append((_decoded(key[0]), _decoded(key[1]), *key[2:]))
                self._known[key] = len(self._known)
            self._correlation.append(args.correlation)
            self._which.append(self._known[key])

    def join(self, device: EventTable) -> EventTable:
        """The table with these details where rows have none of their own."""
        details = device.args
        if not self._known or not len(device) or not isinstance(details, RowDetails) or details.which is None:
            return device
        ids, first = np.unique(as_array(self._correlation), return_index=True)
        place = np.minimum(np.searchsorted(ids, device.correlation), ids.size - 1)
        called = np.where(ids[place] == device.correlation, as_array(self._which)[first[place]], -1)
        pairs, which = np.unique(np.stack((details.which, called)), axis=1, return_inverse=True)
        own = details.shared_details()
        shared = [_joined(own[row], self._launches[launch] if launch >= 0 else None) for row, launch in pairs.T.tolist()]
        args = RowDetails(len(device), which=which.reshape(-1).astype(np.int64), shared=shared)
        return EventTable(device.start_ns, device.end_ns, device.name_id, device.stream, device.device, device.process, device.thread,
                          device.correlation, device.names, args)


def _joined(own: dict[str, Any], launched: Launch | None) -> dict[str, Any]:
    if launched is None:
        return own
    grid, block, shared_bytes, size = launched
    if own["category"] != "kernel":
        return {**own, "bytes": size if own["bytes"] < 0 else own["bytes"]}
    sizes = {"grid": grid, "block": block, "shared_bytes": shared_bytes}
    return {**own, **{name: value for name, value in sizes.items() if own[name] is None}}


def _decoded(text: bytes) -> list[int] | None:
    return _INTEGERS.decode(text) if text else None

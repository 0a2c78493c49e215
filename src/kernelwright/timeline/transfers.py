"""Copies between host and devices: size, kind of memory, achieved bandwidth. Definitions: docs/timeline-structure.md."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..model.structure import MOST_TRANSFERS, HostLink, Transfer, Transfers
from ..model.table import Int64
from ..model.trace import Trace
from .intervals import covered
from .kernel_names import copy_kind
from .ordering import grouped, stable_order
from .work import Work, codes

_DIRECTIONS = {"HtoD": "HtoD", "DtoH": "DtoH", "DtoD": "DtoD", "PtoP": "PtoP", "HtoH": "HtoH"}
_OVER_LINK = frozenset({"HtoD", "DtoH"})


def transfers(trace: Trace, work: Work, links: Mapping[str, HostLink] | None = None) -> Transfers:
    """All copies that the steps launched, by direction, memory and device, the longest first. links: device name -> its host link."""
    rows = np.flatnonzero(work.is_copy)
    hidden = _hidden(work, rows)
    by_device = {index: (links or {}).get(name) for index, name in enumerate(trace.device_names)}
    kinds = [copy_kind(name) for name in trace.device.names]
    groups = codes(work.name_id[rows], work.device[rows])
    order = stable_order(groups)
    found = []
    for places in np.split(order, np.flatnonzero(np.diff(groups[order])) + 1) if rows.size else []:
        mine = rows[places]
        kind = kinds[int(work.name_id[mine[0]])]
        assert kind is not None
        device, sizes, duration = int(work.device[mine[0]]), work.size[mine], int(work.duration[mine].sum())
        known = bool((sizes >= 0).all())
        speed = int(sizes.sum()) / duration if known and duration > 0 else None
        link = by_device.get(device) if kind[0] in _OVER_LINK else None
        found.append(Transfer.model_validate({
            "direction": _DIRECTIONS.get(kind[0], "other"), "source": kind[1], "target": kind[2], "device": device, "count": int(mine.size),
            "bytes": int(sizes.sum()) if known else None, "smallest_bytes": int(sizes.min()) if known else None,
            "largest_bytes": int(sizes.max()) if known else None, "duration_ns": duration,
            "hidden_ns": int(hidden[places].sum()), "bandwidth_gbs": speed,
            "link_pct": 100.0 * speed / link.bandwidth.value if speed is not None and link is not None else None}))
    found.sort(key=lambda row: (-row.duration_ns, row.direction, row.source, row.target, row.device))
    sizes = work.size[rows]
    devices = np.unique(work.device[rows]).tolist()
    return Transfers(
        count=int(rows.size), bytes=int(sizes.sum()) if (sizes >= 0).all() else None, duration_ns=int(work.duration[rows].sum()),
        link=by_device.get(devices[0]) if len(devices) == 1 else None, rows=tuple(found[:MOST_TRANSFERS]))


def _hidden(work: Work, rows: Int64) -> Int64:
    """Time of each copy in which kernels of the steps ran on its device; shape (k,)."""
    hidden = np.zeros(rows.size, dtype=np.int64)
    every = dict(work.by_device)
    for device, mine in grouped(work.device[rows]):
        kernels = every[device][work.is_kernel[every[device]]]
        hidden[mine] = covered(work.start[kernels], work.end[kernels], work.start[rows[mine]], work.end[rows[mine]])
    return hidden

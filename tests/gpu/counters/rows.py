"""Makes a small recording of counters from ncu's reports of known_kernels.py: JSON rows, xz.

    python3 tests/gpu/counters/rows.py tests/data/counters/known_default.json.xz known_default.ncu-rep [MORE.ncu-rep ...]

A row is one launch: its case (the NVTX range `case:NAME`), kernel name and the values of the metrics that knowledge/counters.yaml
names, as ncu measured them; everything else of a report (code, device, process) stays out. Needs the package ncu-report.
"""

from __future__ import annotations

import json
import lzma
import sys
from pathlib import Path
from typing import Any

import ncu_report  # type: ignore[import-untyped]

from kernelwright.roofline.knowledge import counter_knowledge

BESIDE = {"device__attribute_max_warps_per_multiprocessor", "device__attribute_compute_capability_major",
          "device__attribute_compute_capability_minor", "sm__maximum_warps_per_active_cycle_pct", "profiler__replayer_passes"}


def wanted(name: str, names: set[str]) -> bool:
    """Whether a metric of the report is kept."""
    return name in names or (name.startswith("smsp__pcsamp_warps_issue_stalled_") and not name.endswith("_not_issued"))


def row(action: Any, names: set[str]) -> dict[str, Any]:
    """One launch."""
    state = action.nvtx_state()
    ranges = [str(entry) for domain in state.domains() for entry in state.domain_by_id(domain).push_pop_ranges()] if state else []
    metrics = {}
    for name in sorted(action.metric_names()):
        value = action.metric_by_name(name).value() if wanted(name, names) else None
        if isinstance(value, (int, float)):
            metrics[name] = value
    case = next((entry.removeprefix("case:") for entry in ranges if entry.startswith("case:")), "")
    return {"case": case, "kernel": action.name(), "metrics": metrics}


def main(out: Path, reports: list[str]) -> None:
    names = BESIDE | {name for role in counter_knowledge().roles.values() for way in role.ways for name in way.names}
    rows = [row(action, names) for report in reports for part in ncu_report.load_report(report) for action in part]
    out.write_bytes(lzma.compress(json.dumps(rows, separators=(",", ":")).encode(), preset=9))
    print(f"{len(rows)} launches, {out.stat().st_size} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])

"""Counter figures that are more than a sum or a ratio of metrics; knowledge/counters.yaml names them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

WARP_THREADS = 32
SCHEDULERS_PER_SM = 4
"""On every chip of counters.yaml (CUDA programming guide, architecture by compute capability)."""
_SAMPLES = "smsp__pcsamp_warps_issue_stalled_"

Formula = Callable[[Sequence[float], Mapping[str, float], int | None], float | None]
"""(the named metrics' values, all metrics, warps an SM holds) -> the figure; None when it can't be told."""


def theoretical_occupancy(values: Sequence[float], raw: Mapping[str, float], warps_per_sm: int | None) -> float | None:
    """Resident warps of the most that fit, %: smallest limit (blocks) x warps a block / warps an SM.

    values: threads a block, then the limits in blocks. As Nsight Compute's occupancy calculator does it (profiling guide,
    Occupancy); clusters, which can lower it further, are left out.
    """
    threads, *limits = values
    if warps_per_sm is None or threads < 1:
        return None
    return min(100.0, 100.0 * min(limits) * math.ceil(threads / WARP_THREADS) / warps_per_sm)


def stall_share(values: Sequence[float], raw: Mapping[str, float], warps_per_sm: int | None) -> float | None:
    """Share of the resident warps' cycles spent in one stall, %.

    values: warps stalled so per issued instruction, issue-active %, occupancy %. A scheduler holds occupancy x warps_per_sm / 4
    warps on average and issues in issue% of the cycles, so an issue costs (holds / issue rate) warp cycles; the stall's share of it.
    """
    stalled, issue_pct, occupancy_pct = values
    if warps_per_sm is None or occupancy_pct <= 0:
        return None
    warps = occupancy_pct / 100.0 * warps_per_sm / SCHEDULERS_PER_SM
    return 100.0 * stalled * (issue_pct / 100.0) / warps


def sampled_share(values: Sequence[float], raw: Mapping[str, float], warps_per_sm: int | None) -> float | None:
    """Samples of one stall among all samples of warps, %."""
    total = sum(value for name, value in raw.items() if name.startswith(_SAMPLES) and not name.endswith("_not_issued"))
    return 100.0 * values[0] / total if total > 0 else None


def wavefronts_per_cycle(values: Sequence[float], raw: Mapping[str, float], warps_per_sm: int | None) -> float | None:
    """Shared-memory wavefronts of the one a cycle that an SM can do, %. values: wavefronts, elapsed cycles, SMs."""
    wavefronts, cycles, sms = values
    return 100.0 * wavefronts / (cycles * sms) if cycles > 0 and sms > 0 else None


FORMULAS: dict[str, Formula] = {
    "theoretical_occupancy": theoretical_occupancy, "stall_share": stall_share, "sampled_share": sampled_share,
    "wavefronts_per_cycle": wavefronts_per_cycle,
}
"""Name in counters.yaml -> formula."""

"""A profile beside an earlier one: when that is allowed, and the rows of `vs Baseline`."""

from __future__ import annotations

from dataclasses import dataclass

from ..model.measurement import PAIRED
from ..model.profile import Profile
from .figures import Headline, duration_warning, headline, intervals_overlap, kernel_time_name, mismatch
from .numbers import amount, change_pct, faster_or_slower, pct, signed, two, us
from .text import NA


@dataclass(frozen=True)
class Change:
    """One row: a metric before and now, already written."""

    metric: str
    previous: str
    current: str
    change: str


def baseline_refusal(profile: Profile, baseline: Profile) -> str | None:
    """Why `baseline` cannot stand beside `profile` (another device, dtype, parameters, inputs or mode); None when it can."""
    mine, theirs = profile.capture_metadata.mode, baseline.capture_metadata.mode
    if mine != theirs:
        return f"the baseline cannot be compared: its mode is {theirs}, this one's is {mine}"
    reason = mismatch(profile, baseline)
    return None if reason is None else f"the baseline cannot be compared: {reason}"


def noise_mark(profile: Profile, baseline: Profile) -> str:
    """What stands behind changes of the duration and of rates over it: "" where it shows a difference."""
    if duration_warning(profile) or duration_warning(baseline):
        return " (too noisy to compare)"
    return " (within noise)" if intervals_overlap(headline(baseline), headline(profile)) else ""


def idle_row(before: Headline, now: Headline, *, on_cpu: bool) -> tuple[str, float | None, float | None]:
    """(name, before, now) of the idle share. A CPU's is what the operators' times leave of the call, so their own drift between two
    profiles would show as idle time that went or came: both as seen under the profiler."""
    if on_cpu and before.profiled_idle_pct is not None and now.profiled_idle_pct is not None:
        return "Idle% under the profiler", before.profiled_idle_pct, now.profiled_idle_pct
    return "Idle%", before.idle_pct, now.idle_pct


def baseline_rows(profile: Profile, baseline: Profile) -> list[Change]:
    """Rows of the `vs Baseline` table; a row that neither profile measured is left out, but for the first three."""
    now, before = headline(profile), headline(baseline)
    mark = noise_mark(profile, baseline)
    on_cpu = profile.capture_metadata.device == "cpu"

    def marked(change: str, *, noisy: bool = True) -> str:
        return change + mark if noisy and change != NA else change

    kernel = marked(faster_or_slower(change_pct(before.kernel_ns, now.kernel_ns)), noisy=on_cpu)
    if profile.timing is not None and profile.timing.timer.endswith(PAIRED):
        # Only the duration is the judge's; this row compares two profiles taken minutes apart, and proves no gain.
        kernel = f"{signed(change_pct(before.kernel_ns, now.kernel_ns))} (two profiles, not paired)" if kernel != NA else NA
    duration = marked(faster_or_slower(change_pct(before.duration_ns, now.duration_ns)))
    if now.duration_evidence == "counters":
        duration = f"{signed(change_pct(before.duration_ns, now.duration_ns))} (one replay each, noise not known)"
    rows = [
        Change("Duration (us)", us(before.duration_ns), us(now.duration_ns), duration),
        Change("Achieved TFLOP/s", two(before.tflops), two(now.tflops), marked(signed(change_pct(before.tflops, now.tflops)))),
        Change("Achieved GB/s", two(before.gbps), two(now.gbps), marked(signed(change_pct(before.gbps, now.gbps)))),
    ]
    optional = [
        # On a CPU operators share the cores with whatever made the duration noisy; a GPU's kernels do not.
        Change(kernel_time_name(on_cpu=on_cpu), us(before.kernel_ns), us(now.kernel_ns), kernel),
        Change("Launches a step", amount(before.launches), amount(now.launches), signed(change_pct(before.launches, now.launches))),
    ]
    for metric, old, new in (idle_row(before, now, on_cpu=on_cpu), ("TC%", before.tc_pct, now.tc_pct),
                             ("DRAM%", before.dram_pct, now.dram_pct), ("Occ%", before.occupancy_pct, now.occupancy_pct)):
        points = None if old is None or new is None else new - old
        optional.append(Change(metric, pct(old), pct(new), signed(points, " points")))
    return rows + [row for row in optional if (row.previous, row.current) != (NA, NA)]

"""Why the devices were idle, from the flow of mode nsys: one row a cause, with the place that most of it comes from."""

from __future__ import annotations

from dataclasses import dataclass

from ..model.flow import GapCause, GapSite
from ..model.profile import Profile, TimelineSummary
from ..roofline.knowledge import bottlenecks
from .common import bounded


@dataclass(frozen=True)
class IdleCause:
    """Idle time of one cause on all devices."""

    cause: GapCause
    idle_ns: int
    share_pct: float
    """Of the devices' spans together, while it was recorded."""
    call_pct: float
    """The same with the recording's own cost taken out: scaled to the idle share of the call without a profiler. Equal to share_pct where
    the call was not timed without one."""
    gaps: int
    """Gaps that are named after it."""
    site: GapSite | None
    """Where most of it is; None where its gaps are named after other causes."""
    where: str | None
    """Line of the user's."""


def idle_causes(profile: Profile) -> list[IdleCause]:
    """Causes with any idle time, most first; none without device work."""
    flow = profile.flow
    if flow is None:
        return []
    span = sum(device.span_ns for device in flow.devices)
    scale = _scale(profile.timeline)
    times: dict[GapCause, tuple[int, int]] = {}
    for row in (row for device in flow.devices for row in device.causes if row.idle_ns > 0):
        idle, gaps = times.get(row.cause, (0, 0))
        times[row.cause] = idle + row.idle_ns, gaps + row.gaps
    found = []
    for cause, (idle, gaps) in sorted(times.items(), key=lambda item: -item[1][0]):
        sites = sorted((site for site in flow.sites if site.cause == cause), key=lambda site: -site.idle_ns)
        where = next((site.where for site in sites if site.where), None) or _line_of_activity(profile, cause)
        share = 100.0 * idle / span if span else 0.0
        found.append(IdleCause(cause, idle, share, share * scale, gaps, sites[0] if sites else None, where))
    return found


def recorded_steps(profile: Profile) -> int:
    """Steps that flow and structure are of: more than the timeline's, where operators are those of the recording's beginning alone."""
    found = profile.structure.iterations_found.count if profile.structure is not None else 0
    return max(1, found or (profile.timeline.steps if profile.timeline is not None else 1))


def call_share_of_idle_pct(profile: Profile, idle_ns: float) -> float:
    """Share of a call that some of the flow's idle time (over all its steps) is, with the recording's own cost taken out, 0..100."""
    span = sum(device.span_ns for device in profile.flow.devices) if profile.flow is not None else 0
    return bounded(100.0 * idle_ns / span * _scale(profile.timeline)) if span else 0.0


def is_of_recorded(profile: Profile) -> bool:
    """Whether idle shares are those of the recorded steps, for want of a call timed without the recorder (mode nsys, on a GPU)."""
    return profile.flow is not None and (profile.timeline is None or profile.timeline.profiled_idle_share_pct is None)


def of_what(profile: Profile) -> str:
    """What idle shares are of, in words."""
    return bottlenecks().texts["of_recorded" if is_of_recorded(profile) else "of_time"]


def _scale(timeline: TimelineSummary | None) -> float:
    """Idle share without the recording over that with it; 1 where the first is not known."""
    if timeline is None or not timeline.profiled_idle_share_pct or timeline.idle_share_pct is None:
        return 1.0
    return timeline.idle_share_pct / timeline.profiled_idle_share_pct


def _line_of_activity(profile: Profile, cause: GapCause) -> str | None:
    """The activity's own tables know lines of loading, compilation and waits that the largest gaps may lack."""
    activity = profile.timeline.activity if profile.timeline is not None else None
    if activity is None:
        return None
    lines = {"data_loader": [row.where for row in activity.data_loader], "first_use": [row.where for row in activity.compilation],
             "synchronization": [row.where for row in activity.synchronizations]}
    return next((line for line in lines.get(cause, ()) if line), None)

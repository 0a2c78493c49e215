"""Memory-, compute- or latency-bound, or honestly undecided."""

from __future__ import annotations

from collections.abc import Sequence

from ..model.profile import Bottleneck, BottleneckKind, Profile
from ..roofline.counters import busiest_pipe_pct, covered_pct, mean, weighted
from ..roofline.knowledge import bottlenecks
from .common import all_kernels, best_of, is_cpu_timeline, peak_origin, stage_stretch
from .idle import IdleCause, idle_causes, of_what


def classify(compute_pct: float | None, bandwidth_pct: float | None) -> BottleneckKind | None:
    """Which resource is busy. One high: that one; both low: Latency; both high: the larger. None: not enough is known.

    With only one figure known, a high one decides and a low one decides nothing.
    """
    high = bottlenecks().high
    compute_high = compute_pct is not None and compute_pct >= high.compute_pct
    bandwidth_high = bandwidth_pct is not None and bandwidth_pct >= high.bandwidth_pct
    if compute_high and bandwidth_high:
        return "Compute" if (compute_pct or 0.0) > (bandwidth_pct or 0.0) else "Memory"
    if compute_high or bandwidth_high:
        return "Compute" if compute_high else "Memory"
    return None if compute_pct is None or bandwidth_pct is None else "Latency"


def binding_roof(compute_pct: float | None, bandwidth_pct: float | None) -> tuple[float, str] | None:
    """(share of the roof that binds in %, at most 100; "compute" or "memory"): the nearer one. None where it is not known which one
    that is: no share, or one alone that is too low to decide (the other roof may be nearer), or more than memory can give."""
    bandwidth_pct = None if in_cache(bandwidth_pct) else bandwidth_pct
    return None if classify(compute_pct, bandwidth_pct) is None else best_of(compute_pct, bandwidth_pct)


def in_cache(bandwidth_pct: float | None) -> bool:
    """More bytes a second than memory can give, so it is not memory that binds."""
    return bandwidth_pct is not None and bandwidth_pct > 100.0


def bottleneck(profile: Profile) -> Bottleneck:
    """The whole workload: by counters when there are any, else by its position against the peaks, else by idle time."""
    texts = bottlenecks().texts
    counted = counter_shares(profile)
    if counted is not None:
        return Bottleneck(kind=classify(*counted), root_cause=counted_words(profile, *counted) + _second_sentence(profile))
    work = profile.work
    compute, bandwidth = (work.compute_pct, work.bandwidth_pct) if work is not None else (None, None)
    cached = in_cache(bandwidth)
    kind = classify(compute, None if cached else bandwidth)
    if kind is not None or cached:
        key = "position" if compute is not None and bandwidth is not None else "compute_only" if bandwidth is None else "memory_only"
        text = texts[key].format(compute=compute or 0.0, bandwidth=bandwidth or 0.0, origin=peak_origin(profile),
                                 cached=texts["cached"] if cached else "")
        return Bottleneck(kind=kind, root_cause=text + _second_sentence(profile))
    return _by_idle_time(profile) or _undecided(profile)


def counted_words(profile: Profile, compute_pct: float, dram_pct: float) -> str:
    """The sentence on counters. Mode ncu: launches that may have nothing to do with each other are no call."""
    key = "counters_launches" if profile.capture_metadata.mode == "ncu" else "counters"
    return bottlenecks().texts[key].format(compute=compute_pct, bandwidth=dram_pct, covered=covered_pct(tuple(all_kernels(profile))) or 0.0)


def counter_shares(profile: Profile) -> tuple[float, float] | None:
    """(busiest arithmetic pipe %, DRAM %) of a call, by counters; None where they cover too little of the kernels' time.

    Weighted by kernel time, and by the share of the call in which the device works at all: idle, it uses neither.
    """
    kernels = tuple(all_kernels(profile))
    compute, dram = weighted(busiest_pipe_pct, kernels), mean("dram_pct", kernels)
    if compute is None or dram is None:
        return None
    idle = profile.timeline.idle_share_pct if profile.timeline is not None else None
    works = 1.0 - (idle or 0.0) / 100.0
    return compute * works, dram * works


def _by_idle_time(profile: Profile) -> Bottleneck | None:
    """Idle time caps both averages: busy at most 100% - idle, so above some idle share both must be low."""
    timeline, high = profile.timeline, bottlenecks().high
    if timeline is None or timeline.idle_share_pct is None:
        return None
    if 100.0 - timeline.idle_share_pct >= min(high.compute_pct, high.bandwidth_pct):
        return None
    texts, causes = bottlenecks().texts, idle_causes(profile)
    if causes:
        words = texts["idle_because"].format(idle=timeline.idle_share_pct, of=of_what(profile), **_because(causes))
        return Bottleneck(kind="Latency", root_cause=words)
    key = "idle_cpu" if is_cpu_timeline(profile) else "idle"
    return Bottleneck(kind="Latency", root_cause=texts[key].format(idle=timeline.idle_share_pct))


def _because(causes: Sequence[IdleCause]) -> dict[str, str]:
    """The largest cause in words, and its line."""
    largest = causes[0]
    return {"cause": bottlenecks().texts[f"cause_{largest.cause}"], "where": f" ({largest.where})" if largest.where else ""}


def _undecided(profile: Profile) -> Bottleneck:
    roof = profile.roofline
    has_peaks = roof is not None and any((roof.peak_compute, roof.peak_bandwidth, roof.datasheet_compute, roof.datasheet_bandwidth))
    texts, work = bottlenecks().texts, profile.work
    why = texts["unknown_work" if has_peaks else "unknown_peaks"]
    if work is not None and work.bandwidth_pct is not None:
        why = texts["unknown_other"].format(share=work.bandwidth_pct, roof="bandwidth", other="FLOPs")
    elif work is not None and work.compute_pct is not None:
        why = texts["unknown_other"].format(share=work.compute_pct, roof="compute", other="bytes")
    return Bottleneck(kind=None, root_cause=why + (_second_sentence(profile) if idle_causes(profile) else ""))


def _second_sentence(profile: Profile) -> str:
    """The second sentence: the idle share; on a CPU how far the stages' times can be trusted, without a timeline whether the timing can."""
    timeline, texts = profile.timeline, bottlenecks().texts
    suspect = profile.timing.warning if profile.timing is not None else None
    if timeline is None or timeline.idle_share_pct is None:
        return texts["and_suspect"].format(warning=suspect) if suspect else ""
    if causes := idle_causes(profile):
        return texts["and_idle_because"].format(idle=timeline.idle_share_pct, of=of_what(profile), **_because(causes))
    if not is_cpu_timeline(profile):
        return texts["and_idle"].format(idle=timeline.idle_share_pct)
    if (times := stage_stretch(profile)) is not None:
        taken = texts["taken"] if timeline.operator_overhead_ns is not None else ""
        return texts["stretched"].format(times=times, taken=taken, suspect=texts["suspect_too"].format(warning=suspect) if suspect else "")
    if suspect:
        return texts["and_suspect_cpu"].format(warning=suspect)
    profiled = timeline.profiled_idle_share_pct
    differs = profiled is not None and round(profiled) != round(timeline.idle_share_pct)
    corrected = texts["corrected"].format(profiled=profiled) if differs else ""
    return texts["and_outside"].format(idle=timeline.idle_share_pct, corrected=corrected)

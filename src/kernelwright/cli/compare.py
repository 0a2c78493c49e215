"""compare A B [C ...] [--fail-above P]: profiles, versions or directories side by side; a failed gate exits 5."""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from ..model.errors import EXIT_NOT_ACCEPTABLE, EXIT_OK, BadInput
from ..model.profile import Profile
from ..model.saying import Say
from ..pipeline.ncu import is_report_target, read_stored
from ..pipeline.trace_file import is_trace, read_trace
from ..report.compare import Comparison, Gate, compare, letter, render_comparison
from ..report.compare_timelines import (
    compare_documents,
    compare_recordings,
    gate_refusal,
    label_of,
    render_changes,
    render_recordings,
)
from ..report.figures import duration_timing, headline, mismatch, title
from ..report.ncu_compare import compare_captures, render_captures
from .common import Answer, add_run_options, no_params
from .named_profiles import compile_mode_of, find_profiles, profiled
from .targets import workloads

HELP = "show profiles side by side; gate on a slow-down"
DESCRIPTION = (
    "Show two or more profiles side by side; changes are against the first. The gate fails (exit 5) when a later profile takes more than P "
    "percent longer than the first and the 95% intervals of the two do not overlap; where one has no interval, the durations alone decide. "
    "Where the profiles hold timelines (or recordings are named), what appeared, vanished, grew and shrank is shown by operator, kernel "
    "family and kernel; kernels that changed names are matched by operator and input shapes."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The profiles and the gate."""
    parser.add_argument("profiles", metavar="PROFILE", nargs="*",
                        help="a profile's folder or profile.json; or a kernel, a version or KERNEL:VERSION, for its newest profile under "
                             "out/profiles, here or in the project's folder, in a mode and with parameters that all have; or two reports "
                             "of Nsight Compute (.ncu-rep); or recordings of torch.profiler (.json, .json.gz) or Nsight Systems (.sqlite)")
    parser.add_argument("--steps-from", metavar="RANGE", help="recordings: a step is the range of this name (default: kernelwright's own "
                        "steps, else ProfilerStep#N)")
    parser.add_argument("--sweep", metavar="NAME=V1,V2,...", nargs="?", const="", help="versions named as profile_kernel takes them, over "
                        "the values of a parameter (default: the project file's), each point timed in mode event: a table and a plot")
    parser.add_argument("--all", action="store_true", help="every version of the kernels named that has a stored profile, the oldest "
                        "first; with --sweep every version")
    parser.add_argument("--stored", action="store_true", help="sweep: take stored profiles of the same text, parameters, device and "
                        "settings where there are")
    add_run_options(parser)
    parser.add_argument("--fail-above", type=limit, metavar="P", help="fail when slower than the first by more than this, e.g. 3%% or 3")


def limit(text: str) -> float:
    """argparse type of a percentage >= 0: "3%" or "3"."""
    try:
        value = float(text.strip().removesuffix("%"))
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a percentage such as 3% or 0.5")
    return value


def run(args: argparse.Namespace, params: dict[str, str], say: Say) -> Answer:
    """Load, compare, and hold the gate; or sweep."""
    if args.sweep is not None:
        from .sweep import run_sweep

        return run_sweep(args, params, say)
    given = [f"--{name}" for name in ("stored", "out", "clocks", "python", "timeout") if getattr(args, name)]
    given += ["--device"] * (args.device is not None)
    if given:
        raise BadInput("usage", f"{given[0]} is for a sweep, and stored profiles are only read", where="compare", fix="leave it out")
    no_params(params, verb="compare")
    if args.all:
        args.targets, args.model_name = args.profiles, None
        args.profiles = profiled([f"{found.name}:{found.version}" for found in workloads(args, {}, say, verb="compare")], say)
    if len(args.profiles) < 2:
        raise BadInput("one_profile", "needs at least two profiles", where="compare",
                       fix="profile another version first" if args.all else "compare A B, or KERNEL --all")
    if any(is_trace(Path(name)) for name in args.profiles):
        return _recordings(args)
    if args.steps_from is not None:
        raise BadInput("not_a_recording", "--steps-from chooses the steps of recordings, and profiles have theirs", where="--steps-from",
                       fix="leave it out")
    named = find_profiles(args.profiles, say)
    places = [each.place for each in named]
    captures = _captures(args, places)
    if captures is not None:
        return captures
    loaded = [Profile.load(place) for place in places]
    doubts = tuple(each.doubt for each in named if each.doubt is not None)
    if args.fail_above is not None:
        _check_gate(loaded, places)
        if doubts:
            raise BadInput("gate_refused", doubts[0], where="--fail-above", fix="name the profile's folder to mean it as it is")
    labels = [f"{title(profile)} ({word})" for word, profile in zip(args.profiles, loaded, strict=True)]
    found = compare(list(zip(labels, loaded, strict=True)), args.fail_above)
    result: Comparison = replace(found, warnings=(*found.warnings, *doubts))
    changes = compare_documents(loaded)
    data = {"profiles": [str(place.resolve()) for place in places], **result.as_dict(), "timelines": [asdict(part) for part in changes]}
    return Answer(data, (render_comparison(result) + render_changes(changes)).rstrip("\n"), exit_code=_exit_code(result.gate))


def _exit_code(gate: Gate | None) -> int:
    return EXIT_NOT_ACCEPTABLE if gate is not None and gate.failed else EXIT_OK


def _recordings(args: argparse.Namespace) -> Answer:
    """Recordings side by side, each against the first. Raises BadInput."""
    places = [Path(name) for name in args.profiles]
    odd = next((place for place in places if not is_trace(place)), None)
    if odd is not None:
        raise BadInput("mixed_modes", "a recording can only be compared with another recording", where=str(odd),
                       fix="name recordings alone (of a profile: the trace in its raw/ folder), or profiles alone")
    traces = [read_trace(place, args.steps_from) for place in places]
    if args.fail_above is not None:
        for trace in traces[1:]:
            reason = gate_refusal(traces[0], trace)
            if reason is not None:
                raise BadInput("gate_refused", reason, where="--fail-above",
                               fix="record steps (prof.step(), or a range that --steps-from names) on the same device, or leave out "
                                   "--fail-above")
    labelled = [(label_of(named, trace), trace) for named, trace in zip(args.profiles, traces, strict=True)]
    result = compare_recordings(labelled, args.fail_above)
    data = {"recordings": [str(place.resolve()) for place in places], **result.as_dict()}
    return Answer(data, render_recordings(result).rstrip("\n"), exit_code=_exit_code(result.gate))


def _captures(args: argparse.Namespace, named: Sequence[Path]) -> Answer | None:
    """Two captures of ncu, counter by counter and line by line; None where the comparison is one of profiles. Raises BadInput."""
    reports = [is_report_target(name) for name in args.profiles]
    if any(reports):
        if not all(report or _is_ncu(place) for report, place in zip(reports, named, strict=True)):
            raise BadInput("mixed_modes", "a report of ncu can only be compared with another, or with a profile of mode ncu",
                           where="compare", fix="name two reports or profiles of mode ncu")
        if len(named) != 2:
            raise BadInput("two_captures", "captures of ncu are compared two at a time", where="compare", fix="compare A B")
    elif len(named) != 2 or not all(_is_ncu(place) for place in named):
        return None
    if args.fail_above is not None:
        raise BadInput("gate_refused", "the times of ncu's replays are no ground for a gate", where="--fail-above",
                       fix="compare profiles of mode event or annotation")
    before, after = (read_stored(place) for place in named)
    result = compare_captures(before, after)
    return Answer({"captures": [str(place.resolve()) for place in named], **result.as_dict()},
                  render_captures(result).rstrip("\n"))


def _is_ncu(place: Path) -> bool:
    """Whether a stored profile is of mode ncu and has its reports."""
    raw = str(place / "raw")
    return os.path.isdir(raw) and is_report_target(raw) and Profile.load(place).capture_metadata.mode == "ncu"


def _check_gate(profiles: Sequence[Profile], places: Sequence[Path]) -> None:
    """A gate needs the same work on the same device under the same compile mode, and a duration of each."""
    modes = [compile_mode_of(place, profile) for place, profile in zip(places, profiles, strict=True)]
    for place, profile in enumerate(profiles):
        reason = mismatch(profiles[0], profile, ("A", letter(place)))
        if reason is None and modes[place] != modes[0]:
            reason = f"its --compile-mode is {modes[place] or 'none'}, A's is {modes[0] or 'none'}"
        if reason is None:
            reason = _no_duration(profile, profiles[0])
        if reason is not None:
            raise BadInput("gate_refused", f"{letter(place)} can't be held against A: {reason}", where="--fail-above",
                           fix="compare without --fail-above, or profile both under the same settings")


def _no_duration(profile: Profile, first: Profile) -> str | None:
    """Why the durations are no ground for a gate: only calls and marked steps have one, and a sum of device time is none."""
    own, before = headline(profile).duration_of, headline(first).duration_of
    for each in (first, profile):
        if duration_timing(each) is None:
            return f"{title(each)} holds no timing of calls or steps"
        if each.timing is None and each.recording is not None and each.recording.steps_from == "found":
            return f"{title(each)} has no marked steps: those found by repetition need not be the same work"
    return None if own == before else f"one duration is the time of a {own}, the other of a {before}"

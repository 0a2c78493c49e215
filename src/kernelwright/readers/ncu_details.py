"""Reads one `.ncu-rep` in depth with NVIDIA's own reader (package ncu-report); needs no GPU.

Metrics of the heaviest launches alone are read whole, instructions of fewer still: a full capture has over 2,000 metrics a launch
(12 ms), and a report can hold thousands of launches.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from ..model.errors import BadInput
from .ncu import load_context
from .ncu_file import FILE_VERSION, PROFILE_AGAIN, Frame, read_frame
from .ncu_instructions import read_instructions, read_sources
from .ncu_records import KernelDetails, NcuDetails, Rule, Scope, Section

MOST_LAUNCHES = 20_000
MOST_WITH_METRICS = 1_000
MOST_IN_DEPTH = 32
"""Launches whose instructions are read: the heaviest of each kernel and grid."""
MAX_REPORT_BYTES = 1 << 30
"""A full capture takes 1 to 2 MB a launch: this is far more launches than anybody reads in depth, and it is read into memory."""
MAX_TEXT = 4_000
NO_KERNEL_FIX = "profile a region that launches kernels; ncu's --kernel-name, --nvtx-include and --launch-skip may leave none"
DEFECTS = (AttributeError, TypeError, ValueError, RuntimeError, OverflowError, IndexError, KeyError, SystemError, MemoryError, OSError)
"""What ncu_report raises on damaged files."""
Keep = Callable[[KernelDetails], bool]
"""Which launches are wanted, told from their head (names, grid, ranges, duration)."""
_KINDS = ("none", "ok", "optimization", "warning", "error")
_SCOPES: dict[int, Scope] = {1: "local", 2: "global"}
_LINK = re.compile(r"@(\w+):([^@]*)@")
DURATION = "gpu__time_duration.sum"


def read_details(file: Path, keep: Keep | None = None) -> NcuDetails:
    """Everything that the report tells of the launches that are wanted (all).

    Raises BadInput for what is no whole report of at least one kernel; MachineLacks without the reader.
    """
    frame = read_frame(file, max_bytes=MAX_REPORT_BYTES)
    if frame.results == 0:
        raise BadInput("no_kernels_in_report", "the report holds no kernel", where=str(file), fix=NO_KERNEL_FIX)
    try:
        context = load_context(file)
        actions = [part.action_by_idx(place) for part in (context.range_by_idx(i) for i in range(context.num_ranges()))
                   for place in range(part.num_actions())]
        if len(actions) != frame.results:
            raise _unread(file, frame, len(actions))
        heads = [_head(file.name, place, action) for place, action in enumerate(actions[:MOST_LAUNCHES])]
        readable = sum(bool(head.name or head.function) for head in heads)
        if readable != len(heads):  # a result that is no message of this version is a launch without a name
            raise _unread(file, frame, readable)
        kernels = tuple(_filled([head for head in heads if keep is None or keep(head)], actions))
    except DEFECTS as error:
        raise BadInput("bad_report", f"the report can't be decoded ({type(error).__name__}: {error})", where=str(file),
                       fix=PROFILE_AGAIN) from error
    cut = f"{file.name}: only the first {MOST_LAUNCHES} of {len(actions)} launches were read"
    return NcuDetails(file, frame.tool, kernels, (cut,) if len(actions) > MOST_LAUNCHES else ())


def _unread(file: Path, frame: Frame, read: int) -> BadInput:
    if frame.version != FILE_VERSION:
        return BadInput("foreign_report", f"file version {frame.version} of {frame.tool} can't be read (known: {FILE_VERSION})",
                        where=str(file), fix="record it with Nsight Compute 2024 or newer")
    return BadInput("bad_report", f"only {read} of its {frame.results} kernels can be decoded", where=str(file), fix=PROFILE_AGAIN)


def _head(report: str, place: int, action: Any) -> KernelDetails:
    """The launch without its metrics, but for what says how heavy it is."""
    return KernelDetails(
        report=report, index=place, name=_text(action.name(1)) or _text(action.name()), function=_text(action.name()),
        grid=_three(action, "launch__grid_dim"), block=_three(action, "launch__block_dim"), stream=_whole(action, "launch__stream_id"),
        device=_whole(action, "launch__device_id"), duration_ns=_number(action, DURATION), nvtx=_nvtx(action))


def _filled(heads: list[KernelDetails], actions: list[Any]) -> Iterable[KernelDetails]:
    by_weight = sorted(heads, key=lambda head: -(head.duration_ns or 0.0))
    whole = {head.index for head in by_weight[:MOST_WITH_METRICS]}
    deep: set[int] = set()
    seen: set[tuple[str, object, object]] = set()
    for head in by_weight:
        key = (head.name, head.grid, head.block)
        if key not in seen and len(deep) < MOST_IN_DEPTH:
            seen.add(key)
            deep.add(head.index)
    for head in heads:
        yield _whole_launch(head, actions[head.index], in_depth=head.index in deep) if head.index in whole else head


def _whole_launch(head: KernelDetails, action: Any, *, in_depth: bool) -> KernelDetails:
    metrics: dict[str, float] = {}
    units: dict[str, str] = {}
    texts: dict[str, str] = {}
    for name in action.metric_names():
        metric = action.metric_by_name(name)
        value = metric.value() if metric is not None else None
        if isinstance(value, str):
            texts[name] = value[:200]
        elif value is not None and math.isfinite(value):
            metrics[name] = float(value)
            if unit := metric.unit():
                units[name] = unit[:40]
    return KernelDetails(
        **{**vars(head), "metrics": metrics, "units": units, "texts": texts, "sections": _sections(action), "rules": _rules(action),
           "instructions": read_instructions(action) if in_depth else (), "sources": read_sources(action) if in_depth else {}})


def _sections(action: Any) -> tuple[Section, ...]:
    found = sorted(action.sections(), key=lambda section: section.order())
    return tuple(Section(_text(one.identifier()), _text(one.name()), tuple(
        (_text(metric.label()) or metric.name(), metric.name()) for metric in (*one.header_metrics(), *one.body_metrics())
        if metric is not None)) for one in found)


def _rules(action: Any) -> tuple[Rule, ...]:
    return tuple(_rule(row) for row in action.rule_results_as_dicts() if row.get("rule_message", {}).get("message"))


def _rule(row: dict[str, Any]) -> Rule:
    message, estimate = row["rule_message"], row.get("speedup_estimation") or {}
    speedup, scope = estimate.get("speedup"), _SCOPES.get(int(estimate.get("type", 0)))
    estimated = float(speedup) if isinstance(speedup, (int, float)) and math.isfinite(speedup) and scope is not None else None
    kind = int(message.get("type", 0))
    return Rule(
        identifier=_text(row.get("rule_identifier", "")), name=_text(row.get("name", "")), section=_text(row.get("section_identifier", "")),
        title=_text(message.get("title", "")), message=plain_message(message["message"]),
        kind=_KINDS[kind] if 0 <= kind < len(_KINDS) else "none",  # type: ignore[arg-type]
        speedup_pct=None if estimated is None else min(max(estimated, 0.0), 100.0), scope=None if estimated is None else scope,
        focus=tuple((_text(one.get("name", "")), float(one.get("value", math.nan)), _text(one.get("info", "")))
                    for one in row.get("focus_metrics", ())))


def plain_message(text: str) -> str:
    """ncu's text with links as their words: `@section:ID:Words@`, `@url:Words:ADDRESS@`, `@metric:Words:NAME@`."""
    def words(link: re.Match[str]) -> str:
        first, _, rest = link[2].partition(":")
        return (rest or first) if link[1] == "section" else first

    return " ".join(_LINK.sub(words, _text(text)).split())


def _nvtx(action: Any) -> tuple[str, ...]:
    state = action.nvtx_state()
    if state is None:
        return ()
    return tuple(_text(name) for domain in state.domains() for name in state.domain_by_id(domain).push_pop_ranges())


def _three(action: Any, stem: str) -> tuple[int, int, int]:
    x, y, z = (_whole(action, f"{stem}_{axis}") or 1 for axis in "xyz")
    return x, y, z


def _whole(action: Any, name: str) -> int | None:
    number = _number(action, name)
    return int(number) if number is not None and 0 <= number < 1 << 62 else None


def _number(action: Any, name: str) -> float | None:
    metric = action.metric_by_name(name)
    value = metric.value() if metric is not None else None
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None


def _text(value: object) -> str:
    return str(value or "")[:MAX_TEXT]

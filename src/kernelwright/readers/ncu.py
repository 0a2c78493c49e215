"""Reader for Nsight Compute reports (.ncu-rep) -> launches with their counters and the NVTX ranges around them.

NVIDIA's package ncu_report decodes them, without a GPU. What a file says is bounded and checked here: names, sizes and numbers of a report
made elsewhere are as untrusted as any other input.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..model.errors import BadInput, MachineLacks
from .ncu_file import DEFAULT_MAX_BYTES, FILE_VERSION, PROFILE_AGAIN, Frame, read_frame
from .symbols import demangled

Shape = tuple[int, ...]
Dims = tuple[int, int, int]
_RANGE = re.compile(
    r"(?P<name>.*?)(?:, seq = \d+)?, op_id = (?P<id>\d{1,18})(?:, sizes = (?P<sizes>\[.*?\]))?(?:, input_op_ids = .*)?", re.S)
"""What torch's emit_nvtx writes, e.g. "aten::mm, seq = 3, op_id = 13, sizes = [[2, 3], [3, 4]], input_op_ids = [(0,-1), (0,-1)]"."""
_MAX_RANGE_CHARACTERS = 1 << 16
_MAX_LAUNCHES = 1 << 20
_DEFAULT_DOMAIN = "<default domain>"
_NO_COUNTER = ("device__attribute_", "nvlink__", "numa__", "c2clink__")
"""Metrics that describe the machine, not the launch."""
_KEPT = ("device__attribute_max_warps_per_multiprocessor",)
"""What counters are shares of."""
_DEFECTS = (AttributeError, TypeError, ValueError, RuntimeError, OverflowError, IndexError, KeyError, SystemError, MemoryError, OSError)
"""What ncu_report raises on damaged files (seen with single bytes changed: TypeError, AttributeError)."""


@dataclass(frozen=True)
class NvtxRange:
    """One push/pop range around a launch."""

    name: str
    """Without what emit_nvtx appends."""
    op_id: int | None = None
    """The operator's number under emit_nvtx; None for ranges of others."""
    sizes: tuple[Shape, ...] | None = None
    """Shapes of the tensor arguments, tensor lists flattened, arguments without dimensions left out; None where not recorded."""


@dataclass(frozen=True)
class NcuLaunch:
    """One profiled launch."""

    index: int
    """Place in the report, in launch order."""
    name: str
    """As Kineto shows it where this machine can demangle, else as ncu does."""
    symbol: str
    """As the compiler named it."""
    function: str
    """The bare function."""
    grid: Dims
    block: Dims
    cluster: Dims | None
    """None: launched without clusters."""
    shared_bytes: int
    """Static and dynamic, of one block; without what the driver reserves."""
    registers: int
    """Of one thread."""
    stream: int | None
    device: int | None
    nvtx: tuple[NvtxRange, ...]
    """Outermost first, of the launching thread's default domain."""
    metrics: dict[str, float] = field(default_factory=dict)
    """ncu name -> value; without metrics that describe the machine, and without those that have no value."""


@dataclass(frozen=True)
class NcuReport:
    """One report."""

    tool: str
    """"ncu 2025.3.1"."""
    device: str
    """"NVIDIA H200"; "" where the file does not say."""
    compute_capability: tuple[int, int] | None
    passes: int | None
    """Most replays of one launch; None where the file does not say."""
    launches: tuple[NcuLaunch, ...]
    """Never empty."""


def read_ncu(path: Path, *, max_bytes: int = DEFAULT_MAX_BYTES) -> NcuReport:
    """Read one report.

    Raises BadInput for a file that is missing, empty, too large, cut off, no report, of a version that can't be read, or without a kernel;
    MachineLacks where NVIDIA's reader is not installed (platforms without a wheel).
    """
    frame = read_frame(path, max_bytes=max_bytes)
    if frame.results == 0:
        raise BadInput("no_kernels_in_report", "the report holds no kernel", where=str(path),
                       fix="profile a region that launches kernels; ncu's --kernel-name, --nvtx-include and --launch-skip may leave none")
    if frame.results > _MAX_LAUNCHES:
        raise BadInput("report_too_large", f"the report holds {frame.results} launches", where=str(path), fix="profile fewer launches")
    try:
        actions = list(_actions(load_context(path)))
        launches = tuple(_launch(place, action) for place, action in enumerate(actions))
        device, capability = _device(actions[0]) if actions else ("", None)
    except _DEFECTS as error:
        raise BadInput("bad_report", f"the report can't be decoded ({type(error).__name__}: {error})", where=str(path),
                       fix=PROFILE_AGAIN) from error
    if len(launches) != frame.results:
        raise _unread(path, frame, len(launches))
    passes = max((launch.metrics.get("profiler__replayer_passes", 0.0) for launch in launches), default=0.0)
    return NcuReport(frame.tool, device, capability, int(passes) or None, launches)


def load_reader() -> Any:
    """NVIDIA's reader, which takes 0.4 s to import. Raises ImportError where it is not installed."""
    import ncu_report

    return ncu_report


def load_context(path: Path) -> Any:
    """NVIDIA's own view of a report. Raises MachineLacks where its reader is not installed."""
    try:
        reader = load_reader()
    except ImportError as error:
        raise MachineLacks("no_ncu_report", f"NVIDIA's reader of .ncu-rep files is not there ({error})", where=str(path),
                           fix="analyse the report on Linux (x86_64, aarch64; glibc), macOS 13 or newer, or Windows") from error
    return reader.load_report(str(path))


def _unread(path: Path, frame: Frame, read: int) -> BadInput:
    if frame.version != FILE_VERSION:
        return BadInput("foreign_report", f"file version {frame.version} of {frame.tool} can't be read (known: {FILE_VERSION})",
                        where=str(path), fix="record it with Nsight Compute 2025")
    return BadInput("bad_report", f"only {read} of its {frame.results} kernels can be decoded", where=str(path), fix=PROFILE_AGAIN)


def _actions(context: Any) -> Iterator[Any]:
    for place in range(context.num_ranges()):
        one = context.range_by_idx(place)
        for number in range(one.num_actions()):
            yield one.action_by_idx(number)


def _launch(index: int, action: Any) -> NcuLaunch:
    metrics = _metrics(action)
    symbol, function = str(action.name(action.NameBase_MANGLED)), str(action.name(action.NameBase_FUNCTION))
    cluster = _dims(metrics, "cluster")
    return NcuLaunch(
        index=index, name=demangled(symbol) or str(action.name(action.NameBase_DEMANGLED)), symbol=symbol, function=function,
        grid=_dims(metrics, "grid"), block=_dims(metrics, "block"), cluster=cluster if all(cluster) else None,
        shared_bytes=sum(_whole(metrics, f"launch__shared_mem_per_block_{kind}") or 0 for kind in ("static", "dynamic")),
        registers=_whole(metrics, "launch__registers_per_thread") or 0, stream=_whole(metrics, "launch__stream_id"),
        device=_whole(metrics, "launch__device_id"), nvtx=_ranges(action), metrics=metrics)


def _metrics(action: Any) -> dict[str, float]:
    values: dict[str, float] = {}
    for name in action.metric_names():
        if name.startswith(_NO_COUNTER) and name not in _KEPT:
            continue
        metric = action.metric_by_name(name)
        value = metric.value() if metric is not None and metric.has_value() else None
        if isinstance(value, (int, float)) and math.isfinite(value):
            values[name] = float(value)
    return values


def _whole(metrics: dict[str, float], name: str) -> int | None:
    value = metrics.get(name)
    return int(value) if value is not None and 0 <= value < 1 << 62 else None


def _dims(metrics: dict[str, float], what: str) -> Dims:
    x, y, z = (_whole(metrics, f"launch__{what}_dim_{axis}") or 0 for axis in "xyz")
    return x, y, z


def _ranges(action: Any) -> tuple[NvtxRange, ...]:
    state = action.nvtx_state()
    if state is None:
        return ()
    domains = (state.domain_by_id(number) for number in state.domains())
    return tuple(parse_range(str(text)) for domain in domains if str(domain.name()) == _DEFAULT_DOMAIN for text in domain.push_pop_ranges())


def parse_range(text: str) -> NvtxRange:
    """One range's text as emit_nvtx writes it; any other text is a name."""
    match = _RANGE.fullmatch(text) if len(text) <= _MAX_RANGE_CHARACTERS else None
    if match is None:
        return NvtxRange(text[:_MAX_RANGE_CHARACTERS])
    return NvtxRange(match["name"], int(match["id"]), _sizes(match["sizes"]) if match["sizes"] else None)


def _sizes(text: str) -> tuple[Shape, ...] | None:
    try:
        return flat_shapes(json.loads(text))
    except (ValueError, RecursionError):
        return None


def flat_shapes(dims: Any) -> tuple[Shape, ...]:
    """Shapes in a list of shapes and lists of shapes, in order, empty ones left out: what Kineto's "Input Dims" and emit_nvtx's sizes have
    in common (neither tells a scalar from an argument that is no tensor)."""
    if not isinstance(dims, (list, tuple)):
        return ()
    if dims and all(isinstance(size, int) for size in dims):
        return (tuple(dims),)
    return tuple(shape for inner in dims for shape in flat_shapes(inner))


def _device(action: Any) -> tuple[str, tuple[int, int] | None]:
    def value(name: str) -> Any:
        metric = action.metric_by_name(f"device__attribute_{name}")
        return metric.value() if metric is not None and metric.has_value() else None

    major, minor = value("compute_capability_major"), value("compute_capability_minor")
    known = isinstance(major, int) and isinstance(minor, int)
    return str(value("display_name") or ""), (int(major), int(minor)) if known else None

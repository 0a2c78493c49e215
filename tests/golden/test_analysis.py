"""Real recordings through reader, timeline, attribution and stages. A new folder in tests/data/traces is a new case.

A folder holds trace.json.gz and, if there are any, trace_stacks.json.gz and ops.json, as the probe leaves them.
UPDATE_GOLDEN=1 writes the expected listings anew; read the difference before you keep it.
"""

from __future__ import annotations

import gzip
import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import builders
from golden_files import assert_golden
from kernelwright.attribute import Attributed, attribute
from kernelwright.model.activity import Activity
from kernelwright.model.capture import OpRecord
from kernelwright.model.profile import Operator
from kernelwright.model.trace import Trace
from kernelwright.readers.kineto import read_kineto
from kernelwright.roofline import stages
from kernelwright.timeline import summarize

FOLDERS = sorted(path.parent for path in (Path(__file__).parents[1] / "data" / "traces").glob("*/trace.json.gz"))
NAMES = [folder.name for folder in FOLDERS]


def analysed(folder: Path) -> tuple[Trace, Attributed]:
    ops_file, stacks_file = folder / "ops.json", folder / "trace_stacks.json.gz"
    ops = [OpRecord.model_validate(row) for row in json.loads(ops_file.read_text())] if ops_file.exists() else []
    stacks = read_kineto(stacks_file) if stacks_file.exists() else None
    trace = read_kineto(folder / "trace.json.gz")
    return trace, attribute(trace, ops=ops, stacks=stacks)


def raw_events(folder: Path) -> list[dict[str, Any]]:
    """The recording as plain JSON with exact times, read without any of our code."""
    text = gzip.decompress((folder / "trace.json.gz").read_bytes())
    return [event for event in json.loads(text, parse_float=Fraction)["traceEvents"] if event.get("ph") == "X"]


def in_step(events: list[dict[str, Any]], time: Any) -> bool:
    return any(step["ts"] <= time < step["ts"] + step["dur"] for step in events
               if step["name"] == "kernelwright.step" and step["cat"] == "user_annotation")


def raw_measured_ns(events: list[dict[str, Any]]) -> int:
    """CUDA: all device work that calls inside the steps launched. CPU on one thread: the steps' wall time."""
    device = [event for event in events if event["cat"] in ("kernel", "gpu_memcpy", "gpu_memset")]
    if not device:
        return int(sum(event["dur"] for event in events if event["name"] == "kernelwright.step") * 1000)
    calls = {event["args"]["correlation"]: event["ts"] for event in events if event["cat"] in ("cuda_runtime", "cuda_driver")}
    return int(sum(event["dur"] for event in device if in_step(events, calls[event["args"]["correlation"]])) * 1000)


def listing(trace: Trace, result: Attributed) -> str:
    """Everything that must not change unnoticed, in lines that a person can read."""
    summary = summarize(trace, attributed_ns=result.attributed_ns, unattributed_ns=result.unattributed_ns)
    figures = summary.model_dump(exclude={"activity"})
    lines = [f"{key}: {value:.4f}" if isinstance(value, float) else f"{key}: {value}" for key, value in figures.items()]
    lines += ["", "activity:", *(f"  {line}" for line in activity_lines(result.activity))]
    lines += ["", "stages, per step:"]
    lines += [f"  {row.name} | {row.duration_ns:.1f} ns | {row.calls:g} calls | {row.kernel_count:g} kernels | "
              f"flops {row.flops} | {row.source}"
              for row in stages(result.operators, result.unattributed, builders.roofline("float32"), summary.steps)]
    lines += ["", "operators of the last step:"]
    lines += [line for operator in result.operators if operator.step == summary.steps - 1 for line in operator_lines(operator)]
    lines += ["", "unattributed:"] + [f"  {row.kernel_name} {row.duration_ns} ns" for row in result.unattributed]
    return "\n".join([*lines, "", "warnings:", *(f"  {warning}" for warning in result.warnings), ""])


def activity_lines(activity: Activity) -> list[str]:
    tables = ("synchronizations", "host_copies", "data_loader", "compilation")
    sums = activity.model_dump(exclude={*tables, "overlap"})
    lines = ["  ".join(f"{key}={value}" for key, value in sums.items()), f"overlap: {activity.overlap}"]
    return lines + [f"{table}: {row}" for table in tables for row in getattr(activity, table)]


def operator_lines(operator: Operator) -> list[str]:
    head = (f"  {operator.operator_id} | {operator.stage} | {operator.module} | {operator.source} ({operator.source_kind}) | "
            f"{operator.dtype} {'x'.join(str(list(shape)) for shape in operator.input_shapes)} | {' > '.join(operator.parents)}")
    work = [f"    work: {operator.flops} FLOP, {operator.min_bytes} B"] if operator.min_bytes is not None else []
    fused = [f"    fused: {' '.join(operator.fused_ops)}"] if operator.is_fused else []
    return [head, *work, *fused, *(f"    {k.kernel_name[:70]} | {k.duration_ns} ns | {k.attribution.method} {k.attribution.confidence}"
                                   for k in operator.kernels if k.category != "cpu" or k.duration_ns > 0)]


def test_there_are_recordings_of_both_kinds() -> None:
    assert any(name.startswith("cpu_") for name in NAMES) and any(name.startswith("h200_") for name in NAMES)


@pytest.mark.parametrize("folder", FOLDERS, ids=NAMES)
def test_listing(folder: Path) -> None:
    assert_golden(f"analysis_{folder.name}.txt", listing(*analysed(folder)))


@pytest.mark.parametrize("folder", FOLDERS, ids=NAMES)
def test_time_adds_up_to_what_the_file_says(folder: Path) -> None:
    _, result = analysed(folder)
    assert result.measured_ns == raw_measured_ns(raw_events(folder))
    rows = [kernel.duration_ns for operator in result.operators for kernel in operator.kernels]
    assert sum(rows) + sum(kernel.duration_ns for kernel in result.unattributed) == result.measured_ns
    assert min(rows) >= 0


@pytest.mark.parametrize("folder", [folder for folder in FOLDERS if folder.name.startswith("h200_")], ids=lambda folder: folder.name)
def test_kernels_agree_with_the_profilers_own_external_ids(folder: Path) -> None:
    """Kineto notes on each kernel the operator that was current; ours are found by nesting alone."""
    events = raw_events(folder)
    names = {event["args"]["External id"]: event["name"] for event in events if event["cat"] == "cpu_op"}
    calls = {event["args"]["correlation"]: event["ts"] for event in events if event["cat"] in ("cuda_runtime", "cuda_driver")}
    theirs = sorted((event["name"], names[event["args"]["External id"]]) for event in events
                    if event["cat"] in ("kernel", "gpu_memcpy", "gpu_memset") and in_step(events, calls[event["args"]["correlation"]])
                    and event["args"].get("External id") in names)
    _, result = analysed(folder)
    ours = sorted((kernel.kernel_name, operator.operator_name) for operator in result.operators for kernel in operator.kernels
                  if operator.operator_name != "cudaGraphLaunch")
    assert ours == theirs
    assert result.attributed_ns >= 0.99 * result.measured_ns


@pytest.mark.parametrize("folder", FOLDERS, ids=NAMES)
def test_operator_ids_are_unique(folder: Path) -> None:
    _, result = analysed(folder)
    ids = [operator.operator_id for operator in result.operators]
    kernels = [kernel.kernel_id for operator in result.operators for kernel in operator.kernels]
    kernels += [kernel.kernel_id for kernel in result.unattributed]
    assert len(ids) == len(set(ids)) and len(kernels) == len(set(kernels))

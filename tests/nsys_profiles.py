"""Profiles of mode nsys from the recordings of tests/data/nsys, as a live run makes them; assembled once for a whole test run."""

from __future__ import annotations

import functools
from pathlib import Path

from kernelwright.model.capture import ProbeResult
from kernelwright.model.profile import ClockReading, Profile
from kernelwright.model.recording import Recording
from kernelwright.model.trace import Trace
from kernelwright.model.workload import WorkloadRef
from kernelwright.pipeline.assemble import Run, assemble
from kernelwright.pipeline.recorded import Recorded
from kernelwright.readers.lines import read_lines
from kernelwright.readers.nsys import read_nsys
from nsys_recordings import recording

ROOT = Path(__file__).resolve().parents[1]
TAKEN = "2026-01-02T03:04:05+00:00"


@functools.cache
def profiled(name: str) -> tuple[Profile, Trace]:
    """The diagnosed document and its trace. What the probe counted operator by operator is not part of the recordings."""
    folder = recording(name)
    result = ProbeResult.model_validate_json((folder / "result.json").read_bytes()).model_copy(update={"ops_file": None,
                                                                                                     "compiled_file": None})
    trace, stacks = read_nsys(folder / "report.sqlite")
    lines = read_lines(folder / "lines.json.gz") if (folder / "lines.json.gz").is_file() else ()
    recorded = Recorded(trace, stacks, lines, Recording(recorder="nsys", tool="Nsight Systems 2025.3.2", file="raw/report.nsys-rep",
                                                        steps_from=trace.steps_from, alone=True))
    example, _, compiled = name.partition("-")
    place = ROOT / "examples" / f"{example}.py"
    profile = assemble(Run(
        workload=WorkloadRef(path=place if place.is_file() else ROOT / "tests" / "gpu" / "nsys" / f"{example}.py", name=example),
        mode="nsys", raw=folder, result=result, peaks=(), clocks=ClockReading(requested="none", locked=False),
        compile_mode=compiled or "eager", device_name=None, version="golden", recorded=recorded))
    metadata = profile.capture_metadata.model_copy(update={"capture_timestamp_utc": TAKEN})
    return profile.model_copy(update={"capture_metadata": metadata}), trace

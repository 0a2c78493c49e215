"""The files through which kernelwright and the probe talk. The probe writes plain JSON; these models read it.

The probe (src/kernelwright/probe/) imports nothing of ours, so this is the single description of both files.
`request.json` is written by capture/, `result.json` by the probe, both in the run's raw/ folder.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from .base import Record
from .workload import CompileMode, Device, WorkloadFacts, WorkloadRef

Action = Literal["event", "annotation", "describe", "counters", "nsys"]
""""counters": one step for ncu, which the probe then runs under; nothing is timed and no file but result.json written."""


class ProbeWorkload(Record):
    """The workload as the probe is asked to load it."""

    path: str
    version: str | None = None
    params: dict[str, str] = Field(default_factory=dict)
    source: str | None = None
    """The file of a version that the project file gives one; `version` is then its name alone."""
    function: str | None = None
    """What of `source` is called with the inputs of `path`; None: `path` is `source`, and a workload."""
    import_from: tuple[str, ...] = ()
    """Folders for sys.path, after the file's own."""

    @classmethod
    def of(cls, workload: WorkloadRef) -> ProbeWorkload:
        """The same workload, as the probe reads it."""
        source = workload.source
        return cls(path=str(workload.path), version=workload.version, params=workload.params,
                   source=str(source.path) if source is not None else None, function=source.function if source is not None else None,
                   import_from=tuple(map(str, workload.import_from)))


class ProbeScript(Record):
    """A script that is run as it is, instead of a workload that is loaded."""

    argv0: str
    argv: tuple[str, ...] = ()
    steps_from: str | None = None
    """Name of the range that is a step; None: optimizer steps."""
    run_to_end: bool = False
    """Let the script finish after the recorded steps."""


class ProbeRequest(Record):
    """`request.json`."""

    action: Action
    workload: ProbeWorkload
    device: Device
    """With "cpu" the parent also sets CUDA_VISIBLE_DEVICES="" for the probe's process."""
    out_dir: str
    """Existing folder for result.json, trace.json.gz, trace_stacks.json.gz, ops.json."""
    seed: int = 0
    """Seeds torch, numpy (when imported) and random before the workload is loaded."""
    compile_mode: CompileMode = "eager"
    warmup: int | None = None
    """Fixed number of warm-up calls; None: until stable."""
    steps: int | None = None
    """event: number of timing samples (None: adaptive). annotation: profiled steps (None: 5)."""
    flush_l2: bool = False
    calibrate: bool = False
    """Also measure this device's peaks (no cached calibration was found)."""
    stacks: bool = True
    """annotation: a second, separate profiler pass with Python stacks gives source lines."""
    script: ProbeScript | None = None
    again: bool = False
    """The run before crashed after autotuning: take its timings from autotuned.jsonl in out_dir."""
    variation: bool = False
    """Also see what changes from call to call (inputs under other seeds, weights) and goes on within one (a generation loop, a backward
    pass)."""
    uncompiled: bool = False
    """annotation: where the workload is compiled already, record it once more with its own torch.compile taken off, into the folder
    `uncompiled` of out_dir (a result.json with its recordings)."""
    wait_for: str | None = None
    """counters: once torch is imported, wait until this file exists before anything touches the device."""
    measuring: str | None = None
    """annotation, event: this file is there while times are taken, so that whoever computes meanwhile can keep still."""


class ProbeEnvironment(Record):
    """Where the workload ran."""

    device: Literal["cuda", "cpu"]
    device_name: str
    """torch.cuda.get_device_name(), or the CPU's model name."""
    torch_version: str
    cuda_version: str | None
    python_version: str
    triton_version: str | None
    compute_capability: str | None
    """E.g. "9.0"."""
    sm_count: int | None
    l2_bytes: int | None
    device_memory_bytes: int | None
    cpu_threads: int
    matmul_tf32: bool
    cudnn_tf32: bool
    """The flags as the workload left them."""
    cudnn_benchmark: bool


class ProbeTiming(Record):
    """Raw timing samples of one call."""

    samples_ns: tuple[float, ...]
    """One value a sample, already divided by calls_per_sample."""
    host_ns: tuple[float, ...]
    """Host time of the same samples up to the last launch returning (CUDA), for the host-bound share; else empty."""
    timer: Literal["cuda_events", "perf_counter"]
    calls_per_sample: int
    warmup_calls: int
    warmup_s: float
    flushed_l2: bool
    peak_memory_bytes: int | None
    """torch.cuda.max_memory_allocated over the timed calls; None on the CPU."""


class ProbeWork(Record):
    """What one call must do at least."""

    flops: float | None
    flops_source: str
    """"torch FlopCounterMode", "workload flops()", or the reason why there is none."""
    min_bytes: float | None
    bytes_source: str
    """"inputs + parameters + outputs once", "workload bytes_moved()", or the reason why there is none."""
    counted: dict[str, float] = Field(default_factory=dict)
    """Dispatched operator ("aten::addmm") -> FLOPs of one call, what is compiled in it uncompiled; none where a call can't be watched."""


class ProbePeak(Record):
    """One measured ceiling of this device."""

    name: str
    """"bandwidth" (of memory), "bandwidth:l2", or "matmul:<dtype>" with dtype in float32, tf32, bfloat16, float16, float64."""
    value: float
    unit: Literal["GB/s", "TFLOP/s"]
    method: str
    """E.g. "copy of 512 MiB, read + written", "matmul 8192^3 tf32"."""


class ProbeError(Record):
    """A failure that the probe saw. exit_code is one of errors.py's."""

    code: str
    message: str
    where: str = ""
    fix: str = ""
    exit_code: int
    traceback: str = ""


class ProbeScriptSteps(Record):
    """The steps of a script. Durations in ns: by CUDA events where the script uses CUDA, else by the host's clock."""

    steps_from: str | None
    """Name of the range that is a step; None: optimizer steps."""
    steps_seen: int
    """Steps until the script ended (with run_to_end: until they were no longer counted)."""
    warmup_steps: int
    unprofiled_ns: tuple[float, ...]
    """Warm-up steps, and later ones under run_to_end; the first optimizer step has no known beginning."""
    profiled_ns: tuple[float, ...]
    """Under the profiler; in event mode the timed steps, without one."""
    stacks_steps: int
    run_to_end: bool
    tries: int
    """How often the script was told to end."""


class ProbeResult(Record):
    """`result.json`."""

    status: Literal["ok", "error"]
    error: ProbeError | None = None
    environment: ProbeEnvironment | None = None
    facts: WorkloadFacts | None = None
    timing: ProbeTiming | None = None
    work: ProbeWork | None = None
    peaks: tuple[ProbePeak, ...] = ()
    trace_file: str | None = None
    """Name inside out_dir: Kineto trace of the profiled steps (no stacks). gzip'd Chrome JSON."""
    trace_steps: int = 0
    stacks_file: str | None = None
    """Name inside out_dir: Kineto trace of one step with Python stacks."""
    lines_file: str | None = None
    """Name inside out_dir: the table of user stacks that the line markers in stacks_file name. gzip'd JSON."""
    ops_file: str | None = None
    """Name inside out_dir: JSON list of OpRecord, one step's operators in dispatch order."""
    compiled_file: str | None = None
    """Name inside out_dir: the CompiledIndex of what Triton and Inductor compiled; None when they compiled nothing."""
    script: ProbeScriptSteps | None = None
    warnings: tuple[str, ...] = ()
    phases_s: dict[str, float] = Field(default_factory=dict)
    """Seconds the probe itself spent, by phase: import_torch, load, warmup, time, profile, compiled, count, variation, uncompiled,
    calibrate."""


class OpRecord(Record):
    """One dispatched operator of one step (`ops.json`)."""

    name: str
    """As Kineto writes it: "aten::addmm"."""
    dims: tuple[tuple[int, ...], ...]
    """Shapes of its tensor arguments, in order."""
    dtype: str
    """Dtype of its first floating tensor argument or output; "" when none."""
    flops: float | None
    """By torch.utils.flop_counter's formula; None when torch has none for this operator."""
    bytes: float
    """Each distinct input storage region read once plus each output written once."""

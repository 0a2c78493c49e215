"""`profile.json`: the one document that a profile run leaves. Schema: docs/schema/profile.schema.json."""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path
from typing import Literal

from pydantic import Field

from .activity import Activity
from .base import Abstained, Evidence, Figure, Record
from .counters import CounterOrigin, Counters, NoCounters
from .flow import Flow
from .measurement import Measurement
from .recording import Recording
from .roofline import Ceiling, RooflinePoint
from .structure import Structure
from .workload import ParamValue, TensorSpec

SCHEMA_VERSION = "1.0"
Mode = Literal["annotation", "event", "ncu", "nsys"]
BottleneckKind = Literal["Memory", "Compute", "Latency"]
AttributionMethod = Literal["correlation", "nvtx", "inductor", "none"]
Confidence = Literal["high", "medium", "low", "none"]
SourceKind = Literal["line", "definition"]


class GpuUser(Record):
    """Another process on the GPU."""

    pid: int
    name: str
    memory_bytes: int | None = None
    """GPU memory it holds; None where the driver does not tell."""


class ClockReading(Record):
    """What the device's clocks did during the run. Samples are those under load, one every 100 ms."""

    requested: str
    """"none", "lock" or a number of MHz."""
    locked: bool
    """True only when the clock was locked and the samples show that it was held."""
    locked_mhz: int | None = None
    """The clock that the lock was set to, held or not; None without a lock."""
    sm_mhz_min: int | None = None
    sm_mhz_max: int | None = None
    sm_mhz_median: int | None = None
    samples: int = 0
    throttle_reasons: tuple[str, ...] = ()
    temperature_c_max: int | None = None
    power_w_max: float | None = None
    other_processes: tuple[GpuUser, ...] = ()
    warnings: tuple[str, ...] = ()
    """What makes timings of this run doubtful: other processes, an unsteady clock, throttling."""
    note: str = ""


class CaptureMetadata(Record):
    """What was run, where and when."""

    model_name: str
    version: str | None = None
    mode: Mode
    tool: str | None = None
    """Mode ncu: which ncu wrote the report, "ncu 2025.3.1"."""
    torch_version: str
    compile_mode: str
    device_name: str
    device: Literal["cuda", "cpu"]
    compute_capability: str | None = None
    """E.g. "9.0"; None on a CPU and in older documents."""
    l2_bytes: int | None = None
    """Size of the GPU's L2; None on a CPU, where torch does not tell it, and in older documents."""
    capture_timestamp_utc: str
    python_version: str = ""
    kernelwright_version: str = ""
    dtype: str
    """The floating dtype that carries most of the work."""
    training: bool = False
    clocks: ClockReading


class Metrics(Record):
    """Counters of one kernel by their ncu names; empty when none were collected."""

    raw: dict[str, float] = Field(default_factory=dict)
    origin: CounterOrigin | None = None
    """"measured": this launch was replayed. "propagated": inherited from a launch of the same signature. None without counters."""
    measured_kernel_id: str | None = None
    """The launch that the counters come from; its own id when measured, None when that launch is in no profiled step."""


class Attribution(Record):
    """How sure we are which operator launched a kernel."""

    method: AttributionMethod
    confidence: Confidence


class Kernel(Record):
    """One launch on the device; on the CPU the self time of one operator call."""

    kernel_id: str
    kernel_name: str
    stream_id: int | None
    device_id: int | None
    start_ns: int
    """From the start of the first profiled step."""
    end_ns: int
    duration_ns: int
    """Device time; on the CPU the self time, which can be less than end_ns - start_ns."""
    category: Literal["kernel", "memcpy", "memset", "cpu"] = "kernel"
    grid: tuple[int, int, int] | None = None
    block: tuple[int, int, int] | None = None
    shared_bytes: int | None = None
    """Shared memory of one block, static and dynamic."""
    registers: int | None = None
    """Of one thread."""
    metrics: Metrics = Field(default_factory=Metrics)
    attribution: Attribution
    python_name: str | None = None
    """A Triton kernel of the workload's own: its Python function and where it is defined, "softmax_kernel (ops.py:12)"."""


class Aggregated(Record):
    """Sums over an operator's kernels. None: not measured."""

    total_duration_ns: int
    kernel_count: int
    dominant_kernel_id: str | None
    total_dram_bytes_read: float | None = None
    total_dram_bytes_written: float | None = None
    achieved_occupancy: float | None = None
    tensor_core_active_pct: float | None = None
    l1_hit_rate: float | None = None
    l2_hit_rate: float | None = None


class Operator(Record):
    """One call of one operator, with the kernels it launched."""

    operator_id: str
    """"<operator_name>_<call_index>"."""
    operator_name: str
    call_index: int
    step: int
    """Which profiled step it ran in, from 0."""
    is_fused: bool = False
    fused_ops: tuple[str, ...] = ()
    own_launch: bool = False
    """True: no PyTorch operator, but a launch of the workload's own Triton kernel outside any; named after its Python function."""
    stage: str | None = None
    """Name of the innermost `stage:NAME` range; None when unmarked."""
    optimizer: str | None = None
    """Class of the optimizer whose step() or zero_grad() made the call, e.g. "AdamW"; None outside those, and in older documents."""
    module: str | None = None
    """nn.Module path, e.g. "blocks.0.mlp.fc1"."""
    source: str | None = None
    """The user's own line, "file.py:12"; paths inside the workload's folder are relative to it."""
    source_kind: SourceKind | None = None
    """"line": the line being executed at the call. "definition": where the function around it begins, when no more is known."""
    stack: int | None = None
    """Place in the profile's `stacks`."""
    input_shapes: tuple[tuple[int, ...], ...] = ()
    dtype: str = ""
    flops: float | None = None
    min_bytes: float | None = None
    parents: tuple[str, ...] = ()
    """Enclosing operators, outermost first."""
    kernels: tuple[Kernel, ...]
    aggregated: Aggregated


class MemoryOwner(Record):
    """Allocations that were alive at the peak, by the operator call and line that made them."""

    operator: str | None
    """None: made outside any operator."""
    module: str | None = None
    source: str | None = None
    source_kind: SourceKind | None = None
    bytes: int
    count: int


class MemoryUse(Record):
    """Memory of one device over the profiled steps. peak_bytes = before_bytes + the owners' bytes + left_bytes."""

    device: str
    """"cuda:0", or "cpu"."""
    complete: bool
    """False on the CPU: memory allocated before the recording began (parameters, inputs) is not counted there."""
    start_bytes: int
    """Allocated when the first step began."""
    peak_bytes: int
    peak_ns: int
    """From the start of the first profiled step."""
    peak_step: int
    end_bytes: int
    """Allocated when the last step ended."""
    before_bytes: int
    """Of the peak, what was allocated before the first step."""
    owners: tuple[MemoryOwner, ...]
    """Largest first; the small ones beyond are in left_*."""
    left_bytes: int = 0
    left_count: int = 0
    allocations: int
    """Made in the steps."""
    allocated_bytes: int
    """Their sum, freed or not."""
    timeline: tuple[tuple[int, int], ...]
    """(ns from the start of the first step, allocated bytes); thinned out, extremes and the peak kept."""


class Stage(Record):
    """One row of the stage table: a marked range, or all calls of one operator. Times are per step."""

    name: str
    marked: bool
    calls: float
    """Operator calls a step."""
    kernel_count: float
    """Kernels a step."""
    duration_ns: float
    share_pct: float
    """Of all measured kernel (CPU: step) time."""
    call_ns: float | None = None
    """CPU: the duration without the profiler's overhead, the clock of compute_pct and bandwidth_pct. None where it was not taken out."""
    flops: float | None = None
    min_bytes: float | None = None
    compute_pct: float | None = None
    """Achieved FLOP/s as a share of the measured peak at the dtype in use (evidence: analytic). None too where the profiler's overhead
    is more than half of the duration."""
    bandwidth_pct: float | None = None
    """Minimum bytes / time as a share of the measured bandwidth (evidence: analytic): a lower bound of DRAM%."""
    tc_pct: float | None = None
    dram_pct: float | None = None
    occupancy_pct: float | None = None
    pipe_pct: float | None = None
    """Busiest arithmetic pipe (tensor, FMA, ALU, FP64) of each kernel. These four come from counters, weighted by kernel time; None
    where counters cover less than nine tenths of it."""
    bottleneck: BottleneckKind | None = None
    key_issue: str | None = None
    source: str | None = None
    """The source line with most of its time; where none is known, that of the Triton function of its dominant kernel."""
    dominant_kernel: str | None = None
    binding_roof: str | None = None
    """The roof that is nearest: "compute" or "memory" (analytic); with counters "DRAM", "L2", "L1" or a pipe, e.g. "tensor pipe"."""
    roof_pct: float | None = None
    """Share of binding_roof that is reached, 0..100."""
    roof_evidence: Evidence | None = None
    """"counters" or "analytic"."""
    ncu_estimate_pct: float | None = None
    """The largest speed-up, %, that a rule of ncu's own estimates for a kernel of the stage; None where ncu's rules were not run."""


class TimelineSummary(Record):
    """The profiled steps on one timeline. All sums over all steps unless named per step."""

    steps: int
    step_wall_ns: tuple[int, ...]
    measured_ns: int
    """Sum of all device activity durations; on the CPU operator self time plus step time outside any operator."""
    attributed_ns: int
    unattributed_ns: int
    busy_ns: int
    """Union of device activity inside the steps (CPU: of operators)."""
    span_ns: int
    """From the first step's start to the last step's end of device work."""
    profiler_slowdown: float | None = None
    """Time of a profiled step over the median of the unprofiled call. None without a timing."""
    profiled_idle_share_pct: float | None = None
    """The idle share of the profiled steps themselves, the profiler's own overhead included."""
    operator_overhead_ns: float | None = None
    """CPU: what the profiler added to each operator call (docs/limits.md). None on a GPU, where the profiler slowed the steps little,
    where something else slowed them, and without a timing."""
    unprofiled_ns: float | None = None
    """measured_ns without that overhead: the whole of which the gains on a CPU are shares."""
    idle_share_pct: float | None
    """Share of a call in which the device did nothing (CPU: time outside operators), the profiler's overhead taken out where a
    timing without it exists."""
    launches: int
    gap_count: int
    gap_median_ns: float | None
    gap_total_ns: int
    cpu_bound_share_pct: float | None
    """The part of idle_share_pct in which the device waited for the host to launch; None on the CPU."""
    kernels_total: int
    activity: Activity | None = None
    """Waits, copies, streams, data loading and compilation; None in documents from before they were recorded."""


class Roof(Record):
    """Ceilings at the dtype in use, measured beside datasheet."""

    dtype: str
    """The arithmetic peak's key: float32, tf32, bfloat16, float16, float64."""
    peak_compute: Figure | None
    peak_bandwidth: Figure | None
    datasheet_compute: Figure | None
    datasheet_bandwidth: Figure | None
    ridge_point: Figure | None
    """FLOP/B = peak TFLOP/s / peak GB/s * 1000, from the measured peaks when present, else the datasheet's."""
    ceilings: tuple[Ceiling, ...] = ()
    """Every known roof: bandwidth of DRAM, L2 and L1, tensor and plain pipes at the dtype in use. Empty in older documents."""
    other_pipes: tuple[Ceiling, ...] = ()
    """Pipes of narrower arithmetic that is not in use here: what an optimised version that uses it is held against."""


class WorkSummary(Record):
    """What one call must do, and how fast it did that. None: not known."""

    flops: Figure | None
    min_bytes: Figure | None
    achieved_compute: Figure | None
    achieved_bandwidth: Figure | None
    arithmetic_intensity: Figure | None
    compute_pct: float | None
    """Achieved as a share of peak_compute."""
    bandwidth_pct: float | None


class Finding(Record):
    """Something a rule saw, with its evidence and what mending it could give at most."""

    rule: str
    name: str
    """Short imperative words, e.g. "Fuse elementwise kernels"."""
    detail: str
    stage: str | None = None
    where: str | None = None
    """Source line, when known."""
    estimated_gain_pct: float
    """Share of the whole call's time that the change could save at most (Amdahl), 0..100."""
    trigger: str
    """"metric=value", e.g. "idle_share=62%"."""
    evidence: Evidence
    hint: str = ""
    playbook: str = ""
    """Page below the plugin's folder that says what to do, e.g. "knowledge/playbooks/sync.md"; "" in older documents."""
    kernel: str | None = None
    """The kernel that loses most, where the rule looks at kernels one by one."""
    kernel_count: int | None = None
    """How many kernels it is about, that one among them."""
    ncu_estimate_pct: float | None = None
    """ncu's own estimate for the same stage or kernel, where its rules were run; shown beside ours, never mixed with it."""


class CompiledKernel(Record):
    """One kernel that a compiler made for this workload, or one choice of max-autotune. None: not known."""

    kernel_name: str
    """As in the timeline; of a choice: the fastest candidate."""
    python_name: str | None
    source: str | None
    """"file.py:12" of the Python function."""
    origin: Literal["triton", "inductor", "inductor_cpp", "template"]
    """The workload's own Triton kernel; one that Inductor generated (Triton; C++); max-autotune's choice for an operator."""
    stages: tuple[str, ...]
    """Stages in whose timeline it appears; empty when it appears in none, or there is no timeline."""
    config: dict[str, ParamValue | None] = Field(default_factory=dict)
    """The configuration in use: tile sizes and other compile-time parameters."""
    num_warps: int | None = None
    num_stages: int | None = None
    registers: int | None = None
    """Per thread."""
    spills: int | None = None
    shared_bytes: int | None = None
    configs_tried: int | None = None
    """None: nothing was tuned."""
    best_ns: float | None = None
    second_ns: float | None = None
    """Fastest and next configuration as the autotuner timed them, under its own conditions: not comparable with our durations."""
    tuning_note: str = ""
    """Why there are no timings."""
    tuned_for: str = ""
    """Key of the tuning, or the operator and inputs of the choice."""
    fused_nodes: tuple[str, ...] = ()
    """Names of the graph nodes fused into it, where the generated code says."""
    artifacts: tuple[str, ...] = ()
    """Paths below the profile's folder."""
    evidence: Evidence = "compiler"
    timing_evidence: Evidence = "autotuner"


class Bottleneck(Record):
    """The verdict on the whole workload."""

    kind: BottleneckKind | None
    root_cause: str
    """At most two sentences; says so when it rests on peaks instead of counters."""


class ScriptSteps(Record):
    """The steps of a script that ran as it is (docs/workloads.md)."""

    steps_from: str | None
    """Name of the range that is a step; None: a step ends with an optimizer step."""
    warmup_steps: int
    profiled_steps: int
    """Recorded steps; in event mode timed ones."""
    stacks_steps: int
    """Steps recorded once more with Python stacks, after the profiled ones."""
    run_to_end: bool
    """The script was left to finish; else it was ended after the last recorded step."""
    unprofiled_step: Figure | None = None
    """Median time of a step without the profiler."""
    unprofiled_samples: int = 0
    profiled_step: Figure | None = None
    """Median time of a step under the profiler; None in event mode."""
    overhead_per_step: Figure | None = None
    """profiled_step - unprofiled_step. None where too few unprofiled steps were timed, or they were the slower ones."""
    overhead_ratio: float | None = None
    """profiled_step / unprofiled_step; None with it."""
    overhead_note: str = ""
    """Why there is no overhead, or how far to trust it."""


class Profile(Record):
    """The document. Attributed time + unattributed time = measured time, always."""

    schema_version: str = SCHEMA_VERSION
    capture_metadata: CaptureMetadata
    parameters: dict[str, ParamValue] = Field(default_factory=dict)
    inputs: tuple[TensorSpec, ...] = ()
    timing: Measurement | None = None
    host_timing: Measurement | None = None
    """Host time of the same calls until their last launch returned (CUDA)."""
    peak_memory_bytes: int | None = None
    work: WorkSummary | None = None
    roofline: Roof | None = None
    roofline_points: tuple[RooflinePoint, ...] = ()
    """Stages, operators and kernels against the roofs, the heaviest of each; those whose FLOPs or bytes are not known are left out."""
    timeline: TimelineSummary | None = None
    recording: Recording | None = None
    """Mode nsys: who recorded the timeline; None in the other modes."""
    flow: Flow | None = None
    """Mode nsys: busy and idle time with causes, overlap, launches. None where no device work was recorded."""
    structure: Structure | None = None
    """Mode nsys: iterations, regions, launch sequences, copies, memory peaks, the critical path."""
    script: ScriptSteps | None = None
    """Set for scripts only."""
    stages: tuple[Stage, ...] = ()
    memory: tuple[MemoryUse, ...] = ()
    """One row a device that allocated in the steps."""
    operators: tuple[Operator, ...] = ()
    stacks: tuple[tuple[str, ...], ...] = ()
    """Call stacks of the user's own lines that operators name by their place here, outermost first, e.g.
    ("train.py:40 main", "(3 library frames)", "model.py:12 forward")."""
    unattributed_kernels: tuple[Kernel, ...] = ()
    bottleneck: Bottleneck
    findings: tuple[Finding, ...] = ()
    """Ranked by estimated_gain_pct, largest first; never empty after diagnosis."""
    abstained: tuple[Abstained, ...] = ()
    counters: Counters | None = None
    """None: no counters were collected, and `no_counters` says why."""
    no_counters: NoCounters | None = None
    compiled_kernels: tuple[CompiledKernel, ...] = ()
    """What Triton and Inductor compiled; empty when they compiled nothing."""
    evidence: dict[str, Evidence] = Field(default_factory=dict)
    """Figure family -> where it came from, e.g. {"duration": "timeline", "bandwidth": "analytic"}."""
    warnings: tuple[str, ...] = ()

    @cached_property
    def folder(self) -> Path | None:
        """Where its documents are; None for one that was neither written nor loaded. It is no part of the document."""
        return None

    def at(self, folder: Path) -> Profile:
        """The same, its documents in `folder`."""
        placed = self.model_copy()
        placed.__dict__["folder"] = folder.resolve()
        return placed

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Profile:
        """Read a profile.json (or the folder that holds one). Raises BadInput."""
        from .profile_file import read_profile

        return read_profile(Path(path))

"""What a worker's replies may look like. They come from a process that we do not trust, so every field is checked before use."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from ..model.workload import Precision

Seconds = Annotated[float, Field(ge=0, lt=1e7, allow_inf_nan=False)]
Nanoseconds = Annotated[float, Field(gt=0, lt=1e16, allow_inf_nan=False)]
Text = Annotated[str, Field(max_length=2000)]
Plain = int | float | str | bool | None


class Reply(BaseModel):
    """Fields beyond those named are dropped."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)


R = TypeVar("R", bound=Reply)


class Done(Reply):
    """Nothing to say."""


class Admitted(Reply):
    """op admit."""

    readable: bool
    held: bool
    """The candidate's file cannot be written."""
    detail: Text


class Loaded(Reply):
    """op load."""

    environment: dict[str, Any]
    training: bool
    form: Text
    state: dict[str, str]


class StateTaken(Reply):
    """op load_state."""

    loaded: bool


class Built(Reply):
    """op build."""

    precision: Precision
    notes: Annotated[list[Text], Field(max_length=20)]
    build_s: Seconds


class InputsMade(Reply):
    """op make_inputs (of the reference)."""

    jittered: list[str]
    plain: list[list[Plain]]
    """(path, value) of every number, word and switch beside the tensors."""
    changed: dict[str, str] = {}
    """By path of a float input: what was done to the generator's values, in words."""


class Called(Reply):
    """op call. What only the reference's counts for has defaults."""

    call_s: Seconds
    drew_random_numbers: bool = False
    """Torch's."""
    drew_outside: bool = False
    """Python's or NumPy's global ones."""
    buffers_changed: bool = False
    written: list[str] = []
    """Paths of the inputs that the call wrote to."""


class OtherRun(Reply):
    """ops oracle, perturbed, yardstick and rounded (of the reference)."""

    applicable: bool
    reason: Text = ""


class Prepared(Reply):
    """op prepare_timing."""

    ring: int = Field(ge=1, le=1 << 16)
    pool: int = Field(ge=1, le=1 << 20)
    device: Text
    threads: int = Field(ge=1, le=1 << 16)
    call_s: Seconds


class Times(Reply):
    """op time."""

    events_ns: list[Nanoseconds]
    host_ns: list[Nanoseconds]


class Single(Reply):
    """op time_single."""

    call_ns: Nanoseconds | None
    """None: those inputs have another layout than the timed ones."""


class Window(Reply):
    """op record_window: what the worker's timer says of the recorded samples."""

    ring: int = Field(ge=1, le=1 << 16)
    """Calls a sample."""
    events_ns: list[Nanoseconds]
    host_ns: list[Nanoseconds]


class OwnKernels(Reply):
    """op own_kernels: names of what the candidate brought, by its own word."""

    triton: Annotated[list[Text], Field(max_length=64)]
    operators: Annotated[list[Text], Field(max_length=64)]
    functions: Annotated[list[Text], Field(max_length=64)]
    """Of extension modules: "module.function"."""


class Withheld(Reply):
    """op withheld: launches left out, or results made useless, by kernel."""

    counts: Annotated[dict[str, Annotated[int, Field(ge=0)]], Field(max_length=200)]
    unseen: Annotated[list[Annotated[str, Field(max_length=200)]], Field(max_length=200)]
    """Called, and nothing that they returned or wrote could be seen."""


class ConditionReady(Reply):
    """op prepare_condition."""

    applicable: bool
    reason: Text = ""
    calls: int = Field(ge=1, le=1 << 16)
    """A sample."""
    sample_s: Seconds
    """One sample with all that is around it."""
    has_own_graph: bool = False
    """It is not captured: its calls replay CUDA graphs of their own."""


class OutputBytes(Reply):
    """op output_bytes."""

    output_bytes: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    """Of the last timed output, in memory that belongs to no input, parameter or buffer."""
    input_bytes: Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Work(Reply):
    """op count_work (of the reference). None: cannot be counted."""

    flops: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    min_bytes: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None


class SurveyedKind(Reply):
    """How the reference fares on inputs of one other distribution."""

    kind: Text
    free: bool
    """Values may leave the range that the generator's keep to (below 0, above 1)."""
    finite: float = Field(ge=0, le=1)
    """Share of finite elements in its float outputs; 0 where it cannot be run."""
    reason: Text = ""


class Dependence(Reply):
    """How far the reference's output moves with one input or weight alone, or with all inputs."""

    what: Literal["input", "weight", "all inputs"]
    name: Text
    change: float = Field(ge=0)


class Surveyed(Reply):
    """op survey (of the reference)."""

    applicable: bool
    reason: Text = ""
    deterministic: bool | None = None
    remembers: bool = False
    """It gives another output when it is called again, and a new copy the first one's."""
    call_s: Seconds = 0.0
    distributions: list[SurveyedKind] = []
    dependence: list[Dependence] = []
    spread: float | None = None
    """(max - min) / max |x| of the output; None where it is not finite."""


class OutputLayout(Reply):
    """How one output lies in memory."""

    path: Text
    stride: Annotated[list[int], Field(max_length=64)]
    overlaps_itself: bool
    inputs: Annotated[list[Text], Field(max_length=1000)]
    """Inputs whose memory it shares."""
    outputs: Annotated[list[Text], Field(max_length=1000)]


class Layouts(Reply):
    """op layout."""

    outputs: Annotated[list[OutputLayout], Field(max_length=100_000)]


class Churned(Reply):
    """op churn."""

    calls: int = Field(ge=0)

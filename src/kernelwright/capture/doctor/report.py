"""The document that doctor gives. Schema: docs/schema/doctor.schema.json."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ...model.base import Record

Status = Literal["ok", "warn", "missing"]


class Check(Record):
    """One line of the report."""

    name: str
    status: Status
    """warn: works less well, or can't be told. missing: something does not work for want of it."""
    detail: str
    fix: str = ""
    """One command line to paste; words in capitals stand for what only the reader knows. Empty when no command mends it."""
    advice: str = ""
    """In words: what the command needs or does not do, or what else would help."""


class ModeAbility(Record):
    """What one of the four modes can do here."""

    works: bool
    evidence: str
    """What was seen that decides it."""
    figures: dict[str, str] = Field(default_factory=dict)
    """Figure -> where it would come from on this machine (evidence, and how), or "n/a: why"."""
    fix: str = ""
    advice: str = ""


class TorchFacts(Record):
    """The workload's interpreter and what is in it."""

    version: str
    build: str
    """CUDA or HIP version of the build, or "cpu"."""
    python: str
    source: str
    """How it was found: "--python", "VIRTUAL_ENV", "CONDA_PREFIX", ".venv", "the script's Python", "python3", "kernelwright"."""
    triton: str | None
    python_headers: bool | None
    """Whether Python.h is there, which torch.compile and Triton compile against."""


class GpuProcessFacts(Record):
    """A process that uses a GPU."""

    gpu: int
    pid: int
    name: str
    memory_bytes: int | None


class GpuFacts(Record):
    """One GPU. None: not told by the source."""

    name: str
    compute_capability: str | None
    driver: str | None
    driver_cuda: str | None
    """Newest CUDA version that the driver runs."""
    memory_bytes: int | None
    memory_free_bytes: int | None


class ToolFacts(Record):
    """ncu or nsys."""

    works: bool
    path: str | None
    version: str | None
    source: str


class Facts(Record):
    """What was seen, for programs. None: not there, or it can't be told."""

    python: str
    torch: TorchFacts | None
    gpus: tuple[GpuFacts, ...]
    gpu_source: str
    """Who listed the GPUs: "NVML", "nvidia-smi", "driver files"; "" without a GPU."""
    gpu_processes: tuple[GpuProcessFacts, ...] | None
    ncu: ToolFacts
    nsys: ToolFacts
    compiler: str | None
    container: str
    """"docker", "podman", "kubernetes", "container"; "" outside."""
    disk_free_bytes: dict[str, int | None]
    """By use: results, cache, temporary."""
    memory_available_bytes: int | None
    memory_limit_bytes: int | None
    """What the machine has or the control group allows, whichever is less."""
    lock_holder: dict[str, str] | None
    """pid, what, since: the kernelwright run that measures now."""


class Examination(Record):
    """The whole report."""

    schema_version: str = "1.0"
    status: Literal["ok"] = "ok"
    elapsed_s: float
    checks: tuple[Check, ...]
    modes: dict[str, ModeAbility]
    facts: Facts

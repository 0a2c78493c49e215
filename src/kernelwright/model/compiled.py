"""`raw/compiled/index.json`: what Triton and Inductor compiled for a workload. Written by the probe, read through these limits.

The names come from the workload and the generated code, so they may hold anything; file names are our own (k0000.ptx).
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from .base import Record

Name = Annotated[str, StringConstraints(max_length=500)]
Text = Annotated[str, StringConstraints(max_length=2000)]
ConfigValue = bool | int | float | Annotated[str, StringConstraints(max_length=200)] | None
Config = Annotated[dict[Name, ConfigValue], Field(max_length=200)]
"""Tile sizes and other compile-time parameters of a kernel, num_warps and num_stages among them."""
Nanoseconds = Annotated[float, Field(ge=0)]
Count = Annotated[int, Field(ge=0)]
CodeKind = Literal["ttir", "ttgir", "llir", "ptx", "cubin", "amdgcn", "hsaco", "py"]


class CompiledFile(Record):
    """One file in raw/compiled/."""

    file: Annotated[str, StringConstraints(pattern=r"^k[0-9]{4,6}\.[a-z]{2,6}$")]
    kind: CodeKind
    bytes: Count


class TriedConfig(Record):
    """One configuration that an autotuner timed."""

    config: Config
    time_ns: Nanoseconds | None
    """As the autotuner measured it; None: it failed to compile or run."""


class Tuning(Record):
    """One decision of an autotuner."""

    key: Text
    """What was tuned for (shapes, dtypes), as the autotuner writes it; "" when it does not say."""
    best: Config
    timings: Annotated[tuple[TriedConfig, ...], Field(max_length=500)] = ()
    """Fastest first, failures last."""
    note: Text = ""
    """Why there are no timings."""


class CompiledVariant(Record):
    """One compiled form of a kernel. None: the compiler did not say."""

    config: Config
    num_warps: Count | None
    num_stages: Count | None
    registers: Count | None
    """Per thread."""
    spills: Count | None
    """Registers spilled to local memory, as the driver counts them."""
    shared_bytes: Count | None
    files: Annotated[tuple[CompiledFile, ...], Field(max_length=20)] = ()


class CompiledKernelEntry(Record):
    """One kernel that ran."""

    name: Name
    """As the device's timeline shows it."""
    python_name: Name | None
    """Its Python function; None for generated code."""
    source: Name | None
    """"file.py:12" of that function."""
    origin: Literal["triton", "inductor"]
    configs_tried: Count | None
    """None: nothing was tuned."""
    variants: Annotated[tuple[CompiledVariant, ...], Field(max_length=100)]
    tunings: Annotated[tuple[Tuning, ...], Field(max_length=100)] = ()
    source_file: CompiledFile | None = None
    """Its Triton source."""


class GeneratedGraph(Record):
    """Inductor's output code of one compiled graph."""

    name: Name
    file: CompiledFile


class TemplateTiming(Record):
    """One candidate of max-autotune."""

    name: Name
    description: Text
    time_ns: Nanoseconds | None


class TemplateChoice(Record):
    """What max-autotune timed for one operator."""

    operator: Name
    uses: Count = 1
    """How many operators with these inputs were compiled; the table is the first one's."""
    inputs: Annotated[tuple[Name, ...], Field(max_length=32)]
    candidates: Count
    timings: Annotated[tuple[TemplateTiming, ...], Field(max_length=500)]
    """Fastest first, failures last."""


class CompiledIndex(Record):
    """The document."""

    kernels: Annotated[tuple[CompiledKernelEntry, ...], Field(max_length=1000)] = ()
    graphs: Annotated[tuple[GeneratedGraph, ...], Field(max_length=500)] = ()
    choices: Annotated[tuple[TemplateChoice, ...], Field(max_length=1000)] = ()
    left_out: Annotated[tuple[Text, ...], Field(max_length=2000)] = ()
    """What a cap kept out of raw/compiled/."""

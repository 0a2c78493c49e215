"""Loads the data files of knowledge/ into checked records: devices, counters, bottleneck rules."""

from __future__ import annotations

import re
from functools import cache
from typing import Any, Literal, TypeVar

import yaml
from pydantic import ConfigDict, Field, ValidationError, model_validator

from ..model.base import Record
from ..model.counters import CounterSet
from ..model.errors import MachineLacks
from ..model.resources import resource
from ..model.yaml_file import read_yaml

T = TypeVar("T", bound=Record)


class Device(Record):
    """Datasheet of one device model: dense figures, no structured sparsity."""

    name: str
    pattern: str
    """Regular expression searched, ignoring case, in the name that torch reports."""
    compute_tflops: dict[Literal["float32", "tf32", "bfloat16", "float16", "float64"], float]
    bandwidth_gbs: float | None = None
    l2_gbs: float | None = None
    l2_source: str = ""
    host_link: str | None = None
    """Of the device itself, e.g. "PCIe Gen5 x16"; what it is plugged into may be less."""
    host_gbs: float | None = None
    """One direction."""
    float32_lanes_per_sm: int | None = None
    """Multiply-adds a clock and SM on the plain float32 pipes."""
    l1_bytes_per_sm_clock: int | None = None
    source: str
    url: str

    @property
    def l1_gbs(self) -> float | None:
        """GB/s of all L1 caches together at the clock of the float32 figure: FLOP/s / (2 x lanes) is SMs x clock."""
        flops = next((value for key, value in self.compute_tflops.items() if key == "float32"), None)
        if flops is None or self.float32_lanes_per_sm is None or self.l1_bytes_per_sm_clock is None:
            return None
        return flops * 1e3 / (2 * self.float32_lanes_per_sm) * self.l1_bytes_per_sm_clock

    @property
    def l1_source(self) -> str:
        """How l1_gbs is had."""
        return (f"{self.l1_bytes_per_sm_clock} B a clock and SM (CUDA C++ Programming Guide: 32 banks of 32 bits) x SMs x clock, "
                f"as the datasheet's float32 figure has them")


class DeviceFile(Record):
    """`devices.yaml`. The first device whose pattern matches counts."""

    devices: tuple[Device, ...]


class Chip(Record):
    """A chip as `ncu --query-metrics --chips` names it."""

    capabilities: tuple[str, ...]
    """Compute capabilities, e.g. "9.0"."""
    warps_per_sm: int


class Way(Record):
    """One way to a role's figure: exactly one of metric, sum, max, ratio and formula."""

    chips: tuple[str, ...] = ()
    """Only on these; empty: on all."""
    only_read: bool = False
    """Never asked for; read where a report has it."""
    metric: str | None = None
    sum: dict[str, float] | None = None
    """Metric -> weight."""
    max: tuple[str, ...] | None = None
    ratio: tuple[str, str] | None = None
    formula: str | None = None
    """In roofline/formulas.py, over `of`."""
    of: tuple[str, ...] = ()
    times: float = 1.0
    """Factor of a metric or ratio."""

    @model_validator(mode="after")
    def _one_kind(self) -> Way:
        if len([kind for kind in (self.metric, self.sum, self.max, self.ratio, self.formula) if kind is not None]) != 1:
            raise ValueError("a way has exactly one of metric, sum, max, ratio and formula")
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """The metrics it needs."""
        return (self.metric,) if self.metric is not None else tuple(self.sum or ()) or self.max or self.ratio or self.of

    @property
    def weights(self) -> tuple[float, ...]:
        """Factors of `names` in a sum."""
        return tuple(self.sum.values()) if self.sum is not None else (self.times,)

    def is_for(self, chip: str) -> bool:
        """Whether the chip has these metrics."""
        return not self.chips or chip in self.chips


class Healthy(Record):
    """The range of a figure that deserves no further look."""

    label: str
    """As triggers and reports write it."""
    above: float | None = None
    at_most: float | None = None
    hint: str
    """What to do outside of it."""

    def holds(self, value: float) -> bool:
        """Whether the value is healthy."""
        return value > self.above if self.above is not None else self.at_most is None or value <= self.at_most


class Role(Record):
    """One figure of a launch, the same on every chip."""

    model_config = ConfigDict(populate_by_name=True)

    unit: str
    set: CounterSet
    """"default": collected always. "full": with --counters full."""
    meaning: str
    source: str
    """Key of the file's sources."""
    bound: tuple[float, float] | None = None
    healthy: Healthy | None = None
    ways: tuple[Way, ...] = Field(alias="from")
    """In order: the first that a chip has is collected, the first whose metrics a report has is read."""


class CounterFile(Record):
    """`counters.yaml`."""

    chips: dict[str, Chip]
    sources: dict[str, str]
    roles: dict[str, Role]


class High(Record):
    """From which share of its peak, in %, a resource counts as busy, and what bounds a workload then."""

    compute_pct: float
    bandwidth_pct: float


class Rule(Record):
    """Wording and thresholds of one rule."""

    name: str
    detail: str
    """str.format text; each rule says which figures it fills in."""
    hint: str
    thresholds: dict[str, float] = Field(default_factory=dict)
    patterns: dict[str, str] = Field(default_factory=dict)
    """Regular expressions over operator or kernel names."""
    texts: dict[str, str] = Field(default_factory=dict)
    """Further wording by case."""
    key_issue: str = ""
    playbook: str
    """File in knowledge/playbooks: what to do about it."""
    playbooks: dict[str, str] = Field(default_factory=dict)
    """The same by case, where the cases have pages of their own."""
    role: str = ""
    """The counter role whose healthy range is the threshold."""
    yields_to: tuple[str, ...] = ()
    """Rules that say more: their finding about the same stage replaces this one's."""


class BottleneckFile(Record):
    """`bottlenecks.yaml`."""

    high: High
    texts: dict[str, str]
    rules: dict[str, Rule]


@cache
def devices() -> tuple[Device, ...]:
    """All datasheets."""
    return _load("devices.yaml", DeviceFile).devices


def tensor_float64(compute_capability: str | None) -> bool:
    """Whether the device multiplies float64 on tensor cores: A100, H100 and B200 (CUDA C++ Programming Guide, DMMA)."""
    return compute_capability in ("8.0", "9.0", "10.0")


@cache
def counter_knowledge() -> CounterFile:
    """Counter roles and the chips they are known for."""
    return _load("counters.yaml", CounterFile)


@cache
def bottlenecks() -> BottleneckFile:
    """Thresholds and rules."""
    return _load("bottlenecks.yaml", BottleneckFile)


def datasheet(device_name: str) -> Device | None:
    """Datasheet of a device by the name that torch reports; None when it is not known."""
    return next((device for device in devices() if re.search(device.pattern, device_name, re.IGNORECASE)), None)


def _load(name: str, model: type[T]) -> T:
    fix = "reinstall kernelwright"
    try:
        path = resource(f"knowledge/{name}")
    except FileNotFoundError as error:
        raise MachineLacks("knowledge_missing", str(error), where=name, fix=fix) from error
    try:
        content: Any = read_yaml(path)
        return model.model_validate(content)
    except (yaml.YAMLError, ValidationError) as error:
        raise MachineLacks("knowledge_broken", f"the data file is not valid: {error}", where=str(path), fix=fix) from error

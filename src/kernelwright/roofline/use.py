"""What a group of launches used of each roof, by hardware counters, against the time that the timeline gives them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ..model.base import Abstained
from ..model.profile import Kernel, Profile, Roof
from ..model.roofline import Level
from .ceilings import LEVELS, bandwidth_ceiling, compute_ceiling
from .counters import value

FLOP_ROLES = {
    "plain:float32": "flops_fp32", "plain:float16": "flops_fp16", "plain:float64": "flops_fp64", "tensor:tf32": "tensor_flops_tf32",
    "tensor:bfloat16": "tensor_flops_bf16", "tensor:float16": "tensor_flops_fp16", "tensor:float64": "tensor_flops_fp64",
    "tensor:float8": "tensor_flops_fp8", "tensor:float4": "tensor_flops_fp4"}
"""Pipe -> role of its FLOPs (a multiply-add is two)."""
PIPE_ROLES = {"tensor pipe": "tensor_pct", "FMA pipe": "fma_pct", "ALU pipe": "alu_pct", "FP64 pipe": "fp64_pct"}
"""Roof in words -> role of its busy share."""
LEVEL_NAMES: dict[Level, str] = {"dram": "DRAM", "l2": "L2", "l1": "L1"}
CACHED_PCT = 105.0
"""More than this share of the DRAM roof can't have come from DRAM: ncu flushes caches before each replay, the program does not, so
in it L2 holds a part. DRAM is then no roof of these launches."""
_BUSY_PCT = 1.0
_PAST_L1_BYTES = 1 << 20
_MOST_KEPT = 4096


@dataclass(frozen=True)
class Counted:
    """Counters of one launch. None: not known."""

    flops: dict[str, float] | None
    """By pipe; those without any are left out."""
    bytes: dict[Level, float]
    """Levels that are known."""
    pipes: dict[str, float]
    """Busy share in %, by the roof's words."""
    dram_read: float = 0.0
    """The read part of bytes["dram"]."""


@dataclass
class Use:
    """Sums over launches. duration_ns: of all of them; counted_ns: of those with counters."""

    duration_ns: int = 0
    counted_ns: int = 0
    flops: dict[str, float] = field(default_factory=dict)
    flops_ns: int = 0
    """Time of the launches whose FLOPs are known."""
    bytes: dict[Level, float] = field(default_factory=dict)
    bytes_ns: dict[Level, int] = field(default_factory=dict)
    busy: dict[str, float] = field(default_factory=dict)
    """Busy share x time, by pipe."""
    busy_ns: dict[str, int] = field(default_factory=dict)

    def add(self, kernel: Kernel, counted: Counted | None) -> None:
        """One launch; None: it has no counters."""
        time = kernel.duration_ns
        self.duration_ns += time
        if counted is None:
            return
        self.counted_ns += time
        if counted.flops is not None:
            self.flops_ns += time
            for pipe, flops in counted.flops.items():
                self.flops[pipe] = self.flops.get(pipe, 0.0) + flops
        for level, size in counted.bytes.items():
            self.bytes[level] = self.bytes.get(level, 0.0) + size
            self.bytes_ns[level] = self.bytes_ns.get(level, 0) + time
        for pipe, share in counted.pipes.items():
            self.busy[pipe] = self.busy.get(pipe, 0.0) + share * time
            self.busy_ns[pipe] = self.busy_ns.get(pipe, 0) + time

    @property
    def covered(self) -> bool:
        """At least half of the time has counters."""
        return self.counted_ns > 0 and 2 * self.counted_ns >= self.duration_ns


class Counting:
    """Reads counters of one profile's launches, each distinct set once (propagated launches carry equal ones)."""

    def __init__(self, capability: str | None, dtype: str) -> None:
        """dtype: the arithmetic in use (Roof.dtype)."""
        self._capability, self._half = capability, dtype in ("float16", "bfloat16")
        self._kept: dict[object, Counted | None] = {}

    @classmethod
    def for_profile(cls, profile: Profile) -> Counting:
        """For the launches of one profile."""
        return cls(profile.capture_metadata.compute_capability, profile.roofline.dtype if profile.roofline is not None else "")

    def of(self, kernel: Kernel) -> Counted | None:
        """The launch's counters; None without any."""
        raw = kernel.metrics.raw
        if not raw:
            return None
        # Hashing a hundred counters for each of thousands of launches took as long as the rest of the roofline.
        source = kernel.metrics.measured_kernel_id
        key: object = source if source is not None else (tuple(raw), tuple(raw.values()))
        if key not in self._kept:
            if len(self._kept) >= _MOST_KEPT:
                self._kept.clear()
            self._kept[key] = counted(raw, self._capability, half=self._half)
        return self._kept[key]

    def use(self, kernels: Iterable[Kernel]) -> Use:
        """Sums over launches; copies and fills count as time without counters."""
        total = Use()
        for kernel in kernels:
            total.add(kernel, self.of(kernel))
        return total


def counted(raw: dict[str, float], capability: str | None, *, half: bool) -> Counted | None:
    """What the counters of one launch say; None where none of these roles was collected.

    half: the program computes in half precision. Else half-precision FLOPs of the plain pipes are none: the compiler loads constants by
    HFMA2 (seen: 134 million such "FLOPs" in a strided copy).
    """
    pipes = {name: share for name, role in PIPE_ROLES.items() if (share := _known(role, raw, capability)) is not None}
    flops = _flops(raw, capability, pipes.get("tensor pipe"))
    if flops is not None and not half:
        flops.pop("plain:float16", None)
    sizes = _bytes(raw, capability)
    read = _known("dram_read_bytes", raw, capability) or 0.0
    return Counted(flops=flops, bytes=sizes, pipes=pipes, dram_read=read) if pipes or flops is not None or sizes else None


def _flops(raw: dict[str, float], capability: str | None, tensor_pct: float | None) -> dict[str, float] | None:
    """None also where the tensor pipe was busy and no counter says with what (integers, or a type this chip does not count).

    Packed half arithmetic (conversions too) may count as tensor pipe: a little of it, beside counted half FLOPs, is no riddle.
    """
    found = {pipe: flops for pipe, role in FLOP_ROLES.items() if (flops := _known(role, raw, capability)) is not None}
    if "plain:float32" not in found:
        return None
    by_tensor = sum(flops for pipe, flops in found.items() if pipe.startswith("tensor"))
    if tensor_pct is not None and by_tensor == 0 and tensor_pct > (_BUSY_PCT if not found.get("plain:float16") else 10 * _BUSY_PCT):
        return None
    return {pipe: flops for pipe, flops in found.items() if flops > 0}


def _bytes(raw: dict[str, float], capability: str | None) -> dict[Level, float]:
    read, written = (_known(role, raw, capability) for role in ("dram_read_bytes", "dram_write_bytes"))
    sizes: dict[Level, float] = {}
    if read is not None and written is not None:
        sizes["dram"] = read + written
    for level, role in (("l2", "l2_bytes"), ("l1", "l1_bytes")):
        size = _known(role, raw, capability)
        if size is not None:
            sizes[level] = size  # type: ignore[index]
    # TMA copies go from L2 to shared memory past the L1 counters (seen: 12 kB counted of a product that read 148 MB from DRAM).
    below_l1 = max(sizes.get("l2", 0.0), sizes.get("dram", 0.0))
    if "l1" in sizes and below_l1 > 2 * max(sizes["l1"], _PAST_L1_BYTES):
        del sizes["l1"]
    return sizes


def _known(role: str, raw: dict[str, float], capability: str | None) -> float | None:
    figure = value(role, raw, capability)
    return None if isinstance(figure, Abstained) or figure < 0 else figure


def shares(use: Use, roof: Roof, over_ns: float | None = None) -> dict[str, float]:
    """Roof in words -> share that was reached, in %. over_ns: the time to spread the use over; None: that of the counted launches.

    A pipe's share is the larger of its busy share and its FLOP/s against the ceiling. Levels without a ceiling are left out.
    """
    found = {pipe: busy / (over_ns or use.busy_ns[pipe]) for pipe, busy in use.busy.items() if use.busy_ns[pipe] > 0}
    for pipe, words in (("tensor", "tensor pipe"), ("plain:float32", "FMA pipe"), ("plain:float64", "FP64 pipe")):
        by_flops = sum(flops / peak.value for name, flops in use.flops.items()
                       if name.startswith(pipe) and (peak := compute_ceiling(roof, name)) is not None)
        if by_flops > 0 and use.flops_ns > 0:  # FLOP / (TFLOP/s) = 1e-3 ns
            found[words] = max(found.get(words, 0.0), 100e-3 * by_flops / (over_ns or use.flops_ns))
    for level in LEVELS:
        peak, time = bandwidth_ceiling(roof, level), over_ns or use.bytes_ns.get(level, 0)
        if peak is not None and time > 0 and level in use.bytes:
            share = 100.0 * use.bytes[level] / time / peak.value  # B/ns = GB/s
            if level != "dram" or share <= CACHED_PCT:
                found[LEVEL_NAMES[level]] = share
    return found


def binding(found: dict[str, float]) -> tuple[float, str] | None:
    """(share in %, at most 100; roof in words) of the nearest roof; None where nothing is known."""
    if not found:
        return None
    name = max(found, key=lambda key: (found[key], key))
    return min(found[name], 100.0), name

"""What the figures of an optimisation are made of."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Bar:
    """One candidate. Speed-ups over the original; None: no interval."""

    name: str
    speedup: float
    interval: tuple[float, float] | None
    precision: str
    judged: bool
    """False: the screen's estimate."""
    ladder: bool = False
    kept: bool = False


@dataclass(frozen=True)
class Step:
    """A candidate was known to be this much faster, so many seconds after the start."""

    seconds: float
    speedup: float
    precision: str
    judged: bool
    """False: the screen's estimate."""


@dataclass(frozen=True)
class Guess:
    """A prediction and what came: speed-ups."""

    name: str
    low: float
    high: float
    realised: float


@dataclass(frozen=True)
class Part:
    """One part of a call's time, us: what its roof needs, and what is above; roof None: not known."""

    name: str
    time_us: float
    roof_us: float | None

"""What the caller of the judge may choose, and how it says that time is up."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Literal

from pydantic import Field

from ..model.base import Record
from ..model.errors import BadInput, KernelwrightError, MachineLacks, NotAcceptable, WorkloadFailed
from ..model.workload import Device, Precision
from .statistics import ALPHA

SanitizerTool = Literal["memcheck", "racecheck", "initcheck", "synccheck"]

MIN_ROUNDS = 3
USUAL_TIMING_S = 6.0
"""The timing of one judgement, unless it is asked to be longer."""


Condition = Literal["cold L2", "end to end", "graph"]
CONDITIONS: tuple[Condition, ...] = ("cold L2", "end to end", "graph")
"""In this order: what a failed capture leaves behind can then disturb nothing."""


class JudgeOptions(Record):
    """The defaults are those of the command line."""

    precision: Precision = "equal"
    """The lowest precision that a candidate may declare."""
    device: Device = "auto"
    python: str | None = None
    """The interpreter that has the workload's torch; None: found."""
    timeout_s: float = Field(default=600.0, gt=0)
    """Longest time of one step: start and load, build, one call, one block of timed calls."""
    rounds: int = Field(default=MIN_ROUNDS, ge=MIN_ROUNDS)
    """Fresh inputs on which outputs are compared."""
    distributions: bool = True
    """Further rounds on inputs of other distributions (about 30 ms each on a small workload; fewer where calls are slow)."""
    steadiness: bool = True
    """Call again on the same inputs, at once and after many calls (0.3 s at most beside the calls themselves)."""
    degenerate: bool = True
    """Find out, once a session, which inputs and weights the output does not depend on."""
    poison: bool = True
    """Fill the candidate's free memory with garbage before each checked call."""
    seed: int | None = Field(default=None, ge=0, lt=2**48)
    """None: drawn in secret. A verdict names its seed, so that it can be repeated."""
    max_timing_s: float = Field(default=USUAL_TIMING_S, gt=0)
    """The timing stops here when the statistics have not stopped it before."""
    ends_in_time: bool = False
    """Where the deadline leaves less for timing, no more than that: what was timed by then is the answer. Else it is out of time."""
    alpha: float = Field(default=ALPHA, gt=0, le=ALPHA)
    """Chance that the timing's interval misses the true speed-up; a caller that judges one file several times asks for less."""
    timing: bool = True
    """False: correctness only; a right candidate is then AMBIGUOUS with that reason."""
    audits: bool = True
    """The static look at the source (some ms), a call on new values for one that may be faster (further pairs of processes make it anyhow),
    and, for a candidate that brings kernels of its own, a profiled window of calls and the ghost replay (about a second)."""
    conditions: tuple[Condition, ...] = CONDITIONS
    """Further conditions to time under, beside warm: they inform, and decide nothing."""
    conditions_if_faster: bool = False
    """Only where the first pair of processes says FASTER."""
    cross_check: bool = True
    """On a GPU: compare the timer with what torch.profiler records of the kernels."""
    confirm: bool = True
    """What is said rests on two pairs of processes, or three, started in opposite orders. False: on one pair, which decides by itself."""
    lock: bool = True
    """Hold the one-profile-at-a-time lock while timing. False only for a caller that holds it."""
    measures: bool = False
    """The candidate times kernels while it is built and first called, to keep the faster ones: it does so under the lock too."""
    sanitize: tuple[SanitizerTool, ...] = ()
    """Tools of compute-sanitizer that look at one call of a right candidate, each in a process of its own (from seconds to minutes)."""
    confine: bool = True
    """Confine the candidate's process as far as this machine can (docs/judge-separation.md); about 0.1 s."""
    memory_limit_bytes: int | None = Field(default=None, ge=2**28)
    """The candidate and all it starts may use this much memory of the host; None: 80% of what is available when it starts."""
    process_limit: int = Field(default=512, ge=8)
    """The candidate may start this many processes."""
    compile_cache: Literal["own", "user"] = "own"
    """Where a confined candidate's compilers keep their code: a folder for this candidate alone, or the user's own, which is faster
    for candidates that one trusts, and which a hostile one could poison."""
    keep_dir: Path | None = None
    """Keep the workers' logs and raw files here; None: a temporary folder that is removed."""

    @property
    def surveys(self) -> bool:
        """The session's survey of the reference is wanted."""
        return self.distributions or self.degenerate


class OutOfTime(NotAcceptable):
    """The caller's deadline passed before there was a verdict; the candidate's process is gone."""

    def __init__(self, doing: str) -> None:
        super().__init__("out_of_time", f"the time was up while {doing}", where="deadline", fix="give it more time")


class OfReference(KernelwrightError):
    """Marks an error of the workload itself, whatever its exit code: no candidate of this workload can be judged.

    Everything that a candidate does is a verdict; a caller that tries many candidates may stop at this one.
    """


class ReferenceUnusable(OfReference, BadInput):
    """The workload's file or options cannot be used (exit 2)."""


class ReferenceLacks(OfReference, MachineLacks):
    """The machine lacks something that the workload needs (exit 3)."""


class ReferenceFailed(OfReference, WorkloadFailed):
    """The workload itself fails, or its outputs are no evidence (exit 4)."""


class Deadline:
    """A moment on the monotonic clock, maybe never."""

    def __init__(self, at_s: float | None) -> None:
        self.at_s = math.inf if at_s is None else at_s

    def left_s(self) -> float:
        """Seconds left; infinity when there is no deadline."""
        return self.at_s - time.monotonic()

    def check(self, doing: str) -> None:
        """Raises OutOfTime when it has passed."""
        if self.left_s() <= 0:
            raise OutOfTime(doing)

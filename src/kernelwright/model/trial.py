"""What the optimiser's ledger says of a candidate beside its verdict: the quick screen, what was predicted, and what came of that."""

from __future__ import annotations

from typing import Literal

from .base import Record

Origin = Literal["ladder", "single", "warm start", "step", "rescue", "ablation", "combination"]
"""Why a candidate was tried: a row of the torch.compile ladder, one pass alone, what won on this machine before, one pass more (or another)
than its parent, parts of discarded candidates together, a winner less passes that earn nothing, or a combination of what was faster."""
HypothesisResult = Literal["confirmed", "not seen", "unexplained", "not checked"]
ScreenStatus = Literal["timed", "hopeless", "wrong", "failed", "not_applicable", "out_of_budget"]


class Screen(Record):
    """The quick look at a candidate: in one process with the original, at most two seconds of timing. It ranks; it is never a verdict."""

    status: ScreenStatus
    """hopeless: timed until it was clear that it is far behind. wrong: its outputs differ roughly; it was not timed."""
    speedup: float | None = None
    """Median of the paired ratios original time / candidate time; None where nothing was timed."""
    interval: tuple[float, float] | None = None
    """Of that median, about 95% (order statistics); None with too few pairs."""
    pairs: int = 0
    reference_ns: float | None = None
    candidate_ns: float | None = None
    """Medians of one call."""
    calls: int | None = None
    """Of the original in a sample; on a GPU as many of the candidate. None: not timed, or recorded before this was."""
    error: float | None = None
    """Largest relative difference of an output to the original's, ||candidate - original|| / ||original||; None where not compared."""
    limit: float | None = None
    """Above this it is `wrong`."""
    build_s: float = 0.0
    """Building and first call, compilation included."""
    elapsed_s: float = 0.0
    load_s: float = 0.0
    """Of them, what the workload took to load first, in a new process."""
    compiled_ahead: bool = False
    """The compilers' caches had it: what it took says nothing of compiling it."""
    reason: str = ""
    against: str = ""
    """Name of the candidate that it was timed against; empty: the original."""

    @property
    def own_s(self) -> float:
        """elapsed_s less load_s."""
        return self.elapsed_s - self.load_s


class ExpectedMove(Record):
    """A measured quantity that a pass is expected to change: value after / value before."""

    quantity: str
    low: float
    high: float
    operators: str = ""
    """Regular expression: of these operators alone. Empty: of the whole call."""


class PassPrediction(Record):
    """What one pass said it would give, before anything was tried."""

    name: str
    words: str
    gain: tuple[float, float] | None = None
    """Time of a call before / after, from low to high; None where the profile supported no number."""
    moves: tuple[ExpectedMove, ...] = ()


class SeenMove(Record):
    """An expected move beside what the two profiles measured."""

    quantity: str
    operators: str = ""
    low: float
    high: float
    before: float | None = None
    after: float | None = None
    ratio: float | None = None
    """after / before; None where one of them was not measured, or before is 0."""
    result: Literal["seen", "not seen", "not measured"]


class Hypothesis(Record):
    """Prediction of one kept pass against what was measured."""

    name: str
    result: HypothesisResult
    """confirmed: every move that was measured was seen. not seen: one was not. unexplained: it gains (more than it said it could), and how
    it said it would was not seen. not checked: it predicted nothing that was measured."""
    predicted_gain: tuple[float, float] | None = None
    realised_gain: float | None = None
    """What the kept candidate loses without this pass (its ablation); None where that was not timed."""
    moves: tuple[SeenMove, ...] = ()
    words: str = ""

"""Predictions against what came of them: each kept pass's expected moves in the profile before and after, and its realised gain. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence

from ..diagnose.common import all_kernels
from ..model.profile import Kernel, Profile
from ..model.trial import ExpectedMove, Hypothesis, HypothesisResult, PassPrediction, SeenMove
from ..roofline import counters
from ..timeline.kernel_names import GRAPH_LAUNCHES
from .passes import CATALOGUE

IDLE = "idle time"
"""Of a call, in which the device does nothing; its share of a call would grow with all that shortens the device's work."""
TENSOR_CORES, LEAST_SHARE_PCT = "tensor-core share", 1.0
KERNELS = "kernels"
"""Of a call, those that one launch of a CUDA graph starts together too; neither copies nor anything of a CPU."""
LAUNCHES = "launches"
"""Of a call, by the host: one starts all kernels of a CUDA graph."""
SLACK = 0.05
"""A ratio may lie this far outside what was expected: two profiles of one program differ by as much, but for numbers of KERNELS and of
LAUNCHES."""
WORTH = 1.02
"""A pass that earns less than this has no gain to explain."""
BEYOND = 1.1
"""A gain this much above the upper end of its prediction came from elsewhere, too."""


def check(
    predictions: Iterable[PassPrediction], before: Profile, after: Profile | None, realised: Mapping[str, float] | None = None,
) -> tuple[Hypothesis, ...]:
    """One Hypothesis a kept pass. realised: pass -> what the kept candidate loses without it (speed-up); after: None, nothing profiled."""
    listed = list(predictions)
    return tuple(_checked(one, before, after, (realised or {}).get(one.name), _work_of_others(one, listed), _may_add(one, listed),
                          in_the_whole(one, listed)) for one in listed)


def _work_of_others(one: PassPrediction, predictions: Sequence[PassPrediction]) -> float:
    """_of_others, and 0 beside a compile mode: it often fuses more than was predicted of it."""
    compiled = any(CATALOGUE[other.name].carrier for other in predictions if other.name != one.name and other.name in CATALOGUE)
    return 0.0 if compiled else _of_others(one, predictions)


def _may_add(one: PassPrediction, predictions: Sequence[PassPrediction]) -> bool:
    """Whether another kept pass may bring kernels of its own: each but a CUDA graph, a compile mode, and what says that it leaves fewer."""
    return any(other.name != one.name and not {move.quantity for move in other.moves} & {IDLE, KERNELS}
               and not (other.name in CATALOGUE and CATALOGUE[other.name].carrier) for other in predictions)


def _of_others(one: PassPrediction, predictions: Sequence[PassPrediction]) -> float:
    """The least factor of the device's work that the other kept passes say they leave: both profiles see all passes at once. 0 where one of
    them gives no number."""
    others = [other for other in predictions if other.name != one.name and not _is_idle(other)]
    return math.prod(0.0 if gain is None else 1.0 / max(gain[1], 1.0) for gain in gains_once(others))


def in_the_whole(one: PassPrediction, predictions: Sequence[PassPrediction]) -> tuple[float, float] | None:
    """The range of what a pass gives beside the others that were kept. What takes idle time away gives the more there, the less the others
    leave of the call: its waiting is as long, of a shorter one. None where that can't be told."""
    if one.gain is None or not _is_idle(one):
        return one.gain
    waits = gains_once(other for other in predictions if other.name != one.name and _is_idle(other) and other.words != one.words)
    left = _of_others(one, predictions) - sum(1.0 if gain is None else 1.0 - 1.0 / max(gain[1], 1.0) for gain in waits)
    return (one.gain[0], one.gain[1] / left) if left > 0 else None


def _is_idle(one: PassPrediction) -> bool:
    return any(move.quantity == IDLE for move in one.moves)


def gains_once(predictions: Iterable[PassPrediction]) -> list[tuple[float, float] | None]:
    """What these passes say that they give; what several say of the same time, in the same words, once: it can't go twice."""
    return [gain for _, gain in dict.fromkeys((one.words, one.gain) for one in predictions)]


def beyond_prediction(predictions: Sequence[PassPrediction], speedup: float) -> bool:
    """Whether a speed-up is larger than all passes together said they could give; False where one of them gave no number."""
    gains = gains_once(predictions)
    if not gains or any(gain is None for gain in gains):
        return False
    return speedup > BEYOND * math.prod(gain[1] for gain in gains if gain is not None)


def quantity(name: str, profile: Profile, operators: str = "") -> float | None:
    """A quantity of a profile, a step; None where it was not measured. operators: regular expression on their names."""
    timeline = profile.timeline
    if timeline is None or timeline.steps <= 0:
        return None
    if name == IDLE:
        share = timeline.idle_share_pct
        if operators or share is None or share >= 100:
            return None
        return timeline.busy_ns / timeline.steps * share / (100 - share)
    chosen = [one for one in profile.operators if not operators or re.search(operators, one.operator_name)]
    kernels = [kernel for one in chosen for kernel in one.kernels] if operators else list(all_kernels(profile))
    if name == KERNELS:
        return sum(kernel.category == "kernel" for kernel in kernels) / timeline.steps
    if name == LAUNCHES:
        return timeline.launches / timeline.steps if not operators else None
    if name == "kernel time":
        copied_ns = sum(kernel.duration_ns for kernel in kernels if kernel.category in ("memcpy", "memset"))  # a graph's
        total = timeline.measured_ns - copied_ns if not operators else sum(one.aggregated.total_duration_ns for one in chosen)
        return total / timeline.steps
    if name == "DRAM bytes":
        return _dram_bytes(kernels, timeline.steps)
    return counters.mean("tensor_pct", kernels) if name == TENSOR_CORES else None


def _dram_bytes(kernels: Sequence[Kernel], steps: int) -> float | None:
    """A step, of kernels: ncu counts no copies. Those without counters move as much in their time as those with."""
    known_bytes, known_ns, all_ns = 0.0, 0, 0
    for one in kernels:
        if one.category == "kernel":
            read, written = (counters.known(role, one.metrics.raw) for role in ("dram_read_bytes", "dram_write_bytes"))
            all_ns += one.duration_ns
            if read is not None and written is not None:
                known_bytes, known_ns = known_bytes + read + written, known_ns + one.duration_ns
    return known_bytes * all_ns / known_ns / steps if known_ns and known_ns >= counters.LEAST_COVERED * all_ns else None


def seen(move: ExpectedMove, before: Profile, after: Profile | None, of_others: float = 1.0, may_add: bool = False) -> SeenMove:
    """A move beside what the profiles say. of_others: the least factor that other passes may have added to it; may_add: they may have
    brought more of it, so that more than was expected says nothing. Where operators have gone into a CUDA graph, in which none has a name,
    the tensor cores' share is that of the whole call, before and after: enough of it was seen, too little says nothing."""
    move = move.model_copy(update={"low": move.low * of_others})
    hidden = move.quantity == TENSOR_CORES and bool(move.operators) and after is not None and _hides(after, move.operators)
    if hidden:
        move = move.model_copy(update={"operators": ""})
    old = quantity(move.quantity, before, move.operators)
    new = quantity(move.quantity, after, move.operators) if after is not None else None
    ratio = ratio_of(move.quantity, old, new)
    slack = 0.0 if move.quantity in (KERNELS, LAUNCHES) else SLACK
    fits = ratio is not None and move.low - slack <= ratio <= move.high + slack
    unclear = ratio is None or (may_add and ratio > move.high) or (hidden and not fits)
    return SeenMove(quantity=move.quantity, operators=move.operators, low=move.low, high=move.high, before=old, after=new, ratio=ratio,
                    result="not measured" if unclear else "seen" if fits else "not seen")


def _hides(profile: Profile, operators: str) -> bool:
    """Whether a CUDA graph is replayed, and no such operator is called beside it."""
    names = {one.operator_name for one in profile.operators}
    return not names.isdisjoint(GRAPH_LAUNCHES) and not any(re.search(operators, name) for name in names)


def ratio_of(name: str, old: float | None, new: float | None) -> float | None:
    """What a quantity has become of what it was; None where one is not known, or it was nothing. The tensor cores' share often was: below
    LEAST_SHARE_PCT it counts as that."""
    if old is None or new is None:
        return None
    if name == TENSOR_CORES:
        return max(new, LEAST_SHARE_PCT) / max(old, LEAST_SHARE_PCT)
    return new / old if old > 0 else None


def _checked(one: PassPrediction, before: Profile, after: Profile | None, gain: float | None, of_others: float, may_add: bool,
             whole: tuple[float, float] | None) -> Hypothesis:
    moves = tuple(seen(move, before, after, of_others if (move.quantity, move.operators) == ("kernel time", "") else 1.0,
                       may_add and move.quantity == KERNELS) for move in one.moves)
    result: HypothesisResult
    results = {move.result for move in moves} - {"not measured"}
    pays = gain is not None and gain >= WORTH
    beyond = gain is not None and whole is not None and gain > BEYOND * whole[1]
    unsaid = gain is not None and gain >= BEYOND and one.gain is None
    if beyond or (pays and "not seen" in results):
        result, words = "unexplained", f"gains {gain:.2f}x, {'more than predicted' if beyond else 'not how it was predicted'}"
    elif "not seen" in results:
        result, words = "not seen", f"expected otherwise: {_moved(moves, 'not seen')}"
    elif results:
        result, words = "confirmed", _moved(moves, "seen")
    elif unsaid:
        result, words = "unexplained", f"gains {gain:.2f}x, of which it predicted neither a gain nor a quantity that was measured"
    else:
        result, words = "not checked", "no quantity that it predicts was measured" if moves else "it predicts no quantity"
    return Hypothesis(name=one.name, predicted_gain=one.gain, realised_gain=gain, moves=moves, result=result, words=words)


def _moved(moves: Iterable[SeenMove], result: str) -> str:
    return ", ".join(f"{move.quantity} x{move.ratio:.2f}{' (of the whole call)' if _is_whole(move) else ''}"
                     for move in moves if move.result == result)


def _is_whole(move: SeenMove) -> bool:
    """Said of some operators, seen of all."""
    return move.quantity == TENSOR_CORES and not move.operators

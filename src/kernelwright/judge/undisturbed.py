"""Was the reference slowed down while it was timed? On a GPU a stopped process's kernels run on, and take turns with the reference's.

Whoever leaves a small kernel running at the end of its own block loses nothing by it and halves the reference's speed. So once the
candidate's process has ended, the reference is timed alone, and held against what it took beside the candidate.
"""

from __future__ import annotations

import statistics as order
import time

from ..model.verdict import Audit
from .blocks import WARM_S, one_block, plan_of, warm
from .exchange import Exchange
from .placement import same_cores
from .statistics import PROCESS_DIFFERENCE
from .timing import Timed

BLOCKS = 16
LEAST_BLOCKS = 3
REDRAWN_BLOCKS = 4
"""Another core is drawn after so many blocks."""
MOST_TIMINGS = 3
"""A loss must show in so many timings alone: on a busy host calls that launch much differ by 5% from one such timing to the next."""
BUDGET_S = 0.5
CLEAR = 0.10
"""A reference that lost more than this beside the candidate is no measure, whatever the speed-up."""
NOTICED = 0.03
"""One that lost more than this is none where no more than PROCESS_DIFFERENCE of the speed-up is left without it. Two timings of the same
program, a second apart and in the same process, differ by less on a quiet machine."""
NAME = "reference undisturbed"


def time_alone(reference: Exchange, timed: Timed) -> float:
    """Median ns of a call, in blocks as the comparison had them; the longest of MOST_TIMINGS where a shorter one would raise a doubt.

    The candidate's process has ended. Raises WorkerFailed, OutOfTime.
    """
    longest_ns = 0.0
    for _ in range(MOST_TIMINGS):
        longest_ns = max(longest_ns, _timed_once(reference, timed))
        if doubt(timed, longest_ns) is None:
            break
    return longest_ns


def _timed_once(reference: Exchange, timed: Timed) -> float:
    with same_cores([reference.worker.pid], timed.threads[:1]) as draw_cores:
        reply, call_s = warm(reference, calls=timed.ring, seconds=WARM_S / 4)
        plan = plan_of(reply.ring, call_s, call_s, BUDGET_S, reply.device)
        until, values = time.monotonic() + BUDGET_S, list[float]()
        for done in range(BLOCKS):
            if done >= LEAST_BLOCKS and time.monotonic() > until:
                break
            if done % REDRAWN_BLOCKS == 0:
                draw_cores()
            block = one_block(reference, plan, done * plan.samples * plan.ring)
            values += block.per_call_ns(timed.comparison.reference.timer == "perf_counter")
    return order.median(values)


def lost(timed: Timed, alone_ns: float) -> float:
    """What the reference lost beside the candidate, as a share of its time alone; negative where it was faster there."""
    return timed.comparison.reference.median_ns / alone_ns - 1


def doubt(timed: Timed, alone_ns: float) -> str | None:
    """Why a speed-up is not believed: it is, or is mixed with, what the reference lost."""
    share, speedup = lost(timed, alone_ns), timed.comparison.speedup
    if speedup <= 1 or share <= NOTICED or (share <= CLEAR and speedup / (1 + share) > 1 + PROCESS_DIFFERENCE):
        return None
    return (f"the reference took {timed.comparison.reference.median_ns / 1e3:.4g} us a call beside the candidate's process and "
            f"{alone_ns / 1e3:.4g} us once that had ended: something of it went on while the reference was timed")


def audit(timed: Timed, alone_ns: float) -> Audit:
    """The row of the verdict."""
    found = lost(timed, alone_ns)
    detail = f"it took {abs(100 * found):.1f}% {'more' if found >= 0 else 'less'} beside the candidate's process than after that had ended"
    return Audit(name=NAME, result="failed" if doubt(timed, alone_ns) else "passed", detail=detail)

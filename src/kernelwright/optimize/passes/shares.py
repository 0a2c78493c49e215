"""What parts of the profile hold, for passes that pay only where such a part is worth something."""

from __future__ import annotations

import math
import re

from ...diagnose.activity import idle_share_pct
from ...diagnose.common import all_kernels, call_share_pct, matching
from ...model.activity import Activity
from ...roofline.knowledge import bottlenecks
from .base import Context, Move, Prediction
from .conditions import CONVOLUTIONS, NORMS, PRODUCTS, first, idle_share, needs_gpu, needs_module, not_yet_compiled

LEAST_PCT = 5.0
"""Below this share of the time the best that a pass could do drowns in the judge's noise."""
REDUCTIONS = rf"{NORMS}|^aten::(sum|mean|amax|amin|max|min|var|std|norm|linalg_vector_norm|argmax|argmin|logsumexp|prod)$"


def worth(share_pct: float | None, what: str, least_pct: float = LEAST_PCT) -> str | None:
    """Why a pass on operators of this share is not worth trying; None where it is, or where the share was not measured."""
    return None if share_pct is None or share_pct >= least_pct else f"{what} hold {share_pct:.0f}% of the measured time"


def fusible_pct(context: Context) -> float | None:
    """Share of elementwise operators and norms."""
    return context.share_matching_pct(f"{bottlenecks().rules['elementwise_fusion'].patterns['operators']}|{NORMS}")


def reductions_pct(context: Context) -> float | None:
    """Share of norms, softmax and reductions."""
    return context.share_matching_pct(REDUCTIONS)


def products_pct(context: Context) -> float | None:
    """Share of matrix products, those inside convolutions left out."""
    return context.share_pct(*PRODUCTS)


def pointwise_convolutions_pct(context: Context) -> float | None:
    """Share of convolutions whose kernel is one element: matrix products in all but name."""
    own = [operator for operator in matching(context.seen.operators, "|".join(CONVOLUTIONS))
           if len(operator.input_shapes) > 1 and len(operator.input_shapes[1]) > 2 and math.prod(operator.input_shapes[1][2:]) == 1]
    return context.share_of_pct(operator.aggregated.total_duration_ns for operator in own)


def product_shapes(context: Context) -> int:
    """How many different matrix products, by the shapes of their operands, the profile holds."""
    names = [re.escape(name) + "$" for name in PRODUCTS]
    return len({operator.input_shapes for operator in matching(context.seen.operators, "|".join(names)) if operator.kernels})


def half_empty_pct(context: Context) -> float | None:
    """Share of the model's own kernels (uncompiled) with fewer blocks than the device has multiprocessors: others could run beside them.
    None: not known."""
    count, timeline = context.environment.sm_count, context.seen.timeline
    known = [kernel for kernel in all_kernels(context.seen) if kernel.grid is not None and kernel.category == "kernel"]
    if not count or not known or timeline is None or timeline.measured_ns <= 0:
        return None
    half_empty = (kernel.duration_ns for kernel in known if kernel.grid is not None and math.prod(kernel.grid) < count)
    return 100.0 * sum(half_empty) / timeline.measured_ns


def kernels_per_step(context: Context) -> float | None:
    """Device activities of one call, those that a CUDA graph launches together too."""
    timeline = context.profile.timeline
    return timeline.kernels_total / timeline.steps if timeline is not None and timeline.steps else None


def activity_of(context: Context) -> Activity | None:
    """Waits, copies and streams of the model's own steps; None where they were not recorded. What waits under the workload's own
    torch.compile (CUDA graphs that are recorded anew) goes with it."""
    return context.seen.timeline.activity if context.seen.timeline is not None else None


def waiting_pct(context: Context) -> float | None:
    """Share of a call in which the device stood by after the host had waited for it."""
    activity, timeline = activity_of(context), context.seen.timeline
    return idle_share_pct(timeline, activity.synchronization_idle_ns) if activity is not None and timeline is not None else None


def less_waiting(context: Context, share_pct: float | None) -> tuple[Move, ...]:
    """Of the idle time, at least a tenth of this share of a call goes. Nothing on a CPU, where the idle time is not known, or where the
    share is of another recording."""
    idle = idle_share(context)
    if share_pct is None or not idle or not context.on_gpu or context.uncompiled is not None:
        return ()
    return (Move("idle time", 0.0, 1.0 - min(1.0, share_pct / 100.0 / idle) / 10.0),)


def upload_pct(context: Context) -> float | None:
    """Share of a call that copies from the host take."""
    activity = activity_of(context)
    if activity is None:
        return None
    return call_share_pct(context.profile, sum(row.duration_ns for row in activity.host_copies if row.direction == "HtoD"))


def needs_uploads(context: Context) -> str | None:
    """Only where the profile shows copies from the host."""
    activity = activity_of(context)
    copies = activity is None or any(row.direction == "HtoD" for row in activity.host_copies)
    return first(needs_gpu(context), needs_module(context), not_yet_compiled(context),
                 None if copies else "the profile shows no copy from the host")


def without_uploads(context: Context) -> Prediction:
    """At most the time of the copies from the host can go."""
    return at_most(upload_pct(context), "copies from the host")


def at_most(share_pct: float | None, what: str) -> Prediction:
    """Prediction for a pass that can take away at most this share of the call's time (Amdahl)."""
    if share_pct is None:
        return Prediction(f"{what}: share not measured")
    gain = (1.0, 100.0 / (100.0 - share_pct)) if 0 < share_pct < 100.0 else None
    return Prediction(f"{what}: {share_pct:.0f}% of a call", gain)

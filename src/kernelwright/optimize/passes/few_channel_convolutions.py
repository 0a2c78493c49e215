"""Convolutions of few input channels in a Triton kernel that takes over bias, activation and pooling."""

from __future__ import annotations

import math
import re

from ...diagnose.common import matching
from ...model.profile import Operator
from .base import LAYER_FOLD, Context, Move, Pass, Prediction
from .conditions import CONVOLUTIONS, first, needs_convolution, needs_gpu, not_yet_compiled
from .shares import worth

MOST_CHANNELS = 16
"""Of the input, as in the rewrite."""
MOST_SUMMED = 4096
"""Numbers that one number of the result is summed of, as in the rewrite."""
AFTER = re.compile(r"batch_norm|^aten::((relu|clamp_min|clamp|hardtanh)_?|add_|max_pool.*)$")
"""What the kernel may take over of what follows; add_ is the bias on a GPU. Whether windows of a pooling overlap no profile tells."""
LEFT = 0.14
"""Part of that time that stays at best (H100: 1 channel to 6, 5 x 5, ReLU and pooling, 4096 images: 77 us, the library's 552)."""
WHAT = f"convolutions of at most {MOST_CHANNELS} input channels"


def _taken(context: Context) -> list[Operator] | None:
    """Such convolutions and what stands right after them; None where the profile holds no shapes."""
    operators = context.seen.operators
    convolutions = [one for one in matching(operators, "|".join(CONVOLUTIONS)) if not _is_another(one)]
    if any(len(one.input_shapes) < 2 for one in convolutions):
        return None
    few = {id(one) for one in convolutions if _has_few_channels(one)}
    found, follows = [], False
    for one in operators:
        follows = id(one) in few or (follows and AFTER.search(one.operator_name) is not None)
        found += [one] if follows else []
    return found


def _is_another(convolution: Operator) -> bool:
    """Of one or three dimensions (torch makes two of one), or transposed."""
    names = (convolution.operator_name, *convolution.parents)
    return any(word in name for name in names for word in ("transpose", "conv1d", "conv3d"))


def _has_few_channels(convolution: Operator) -> bool:
    """By its input's and its weight's shape: in groups, a weight has fewer channels than the input."""
    given, weight = convolution.input_shapes[:2]
    fits = len(given) == len(weight) == 4 and weight[1] == given[1] <= MOST_CHANNELS
    return fits and math.prod(weight[1:]) <= MOST_SUMMED


def _share_pct(context: Context) -> float | None:
    taken = _taken(context)
    return None if taken is None else context.share_of_pct(one.aggregated.total_duration_ns for one in taken)


def _refuse(context: Context) -> str | None:
    return first(needs_gpu(context), needs_convolution(context), not_yet_compiled(context),
                 f"the profile shows no {WHAT}" if _taken(context) == [] else worth(_share_pct(context), WHAT))


def _predict(context: Context) -> Prediction:
    share_pct = _share_pct(context)
    if share_pct is None:
        return Prediction(f"{WHAT}: share not measured")
    fused = any(AFTER.search(one.operator_name) for one in _taken(context) or [])
    return Prediction(f"{WHAT} and what stands right after them hold {share_pct:.0f}% {context.whole}",
                      (1.0, 100.0 / (100.0 - share_pct * (1.0 - LEFT))),
                      (Move("kernels", 0.0, 0.99), Move("DRAM bytes", 0.0, 0.99)) if fused else ())


PASS = Pass(
    name="few_channel_convolutions", layer=LAYER_FOLD, level="module", dimension="algorithms", cost="compile",
    training=False, refuse=_refuse, predict=_predict, copies_weights=True, measures=True,
    conflicts=frozenset({"fold_conv_bn", "channels_last", "bf16_autocast", "split_attention", "scaled_fp16_attention"}),
    why="Convolutions of few input channels, with bias, activation and pooling, in one kernel wherever that measured faster and as exact.",
)

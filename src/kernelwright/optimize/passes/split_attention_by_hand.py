"""float32 attention written by hand as error-compensated products on tensor cores."""

from __future__ import annotations

import math

from .base import LAYER_LAYOUT, Context, Pass, Prediction, Products
from .conditions import first, needs_float32, needs_gpu, needs_module, not_yet_compiled
from .sdpa_substitution import by_hand_pct, needs_attention_by_hand
from .shares import worth
from .split_attention import FASTEST, split_gain


def refuse_by_hand(context: Context) -> str | None:
    """Why float32 attention that is written by hand, and becomes one call, gets no kernel of its own."""
    return first(needs_gpu(context), needs_module(context), needs_float32(context), not_yet_compiled(context),
                 needs_attention_by_hand(context), worth(by_hand_pct(context), "attention written by hand"))


def gain_by_hand(context: Context, fastest: float = FASTEST) -> Prediction:
    """Of what the one call is expected to leave of it: by the geometric middle of what sdpa_substitution predicts, a call takes
    sqrt(1 - share) of its time with it, and all but 1 - share of that is attention. fastest: how many times as fast it is at best."""
    share_pct = by_hand_pct(context)
    whole = None if share_pct is None else math.sqrt(1.0 - min(share_pct, 99.0) / 100.0)
    taken = 1.0 if not share_pct or whole is None else (1.0 - whole) * 100.0 / share_pct
    return split_gain(context, share_pct, "float32 attention, written by hand,", taken, fastest)


PASS = Pass(
    name="split_attention_by_hand", layer=LAYER_LAYOUT, level="functional", dimension="attention", cost="compile",
    training=False, refuse=refuse_by_hand, predict=gain_by_hand, measures=True,
    partners=frozenset({"sdpa_substitution"}),
    conflicts=frozenset({"sdpa_backend", "bf16", "bf16_autocast", "bf16_reverted", "selective_bf16", "selective_fp16",
                         "scaled_fp16_attention_by_hand"}),
    products=Products("float16", times=3),
    why="Attention as sums of narrow products on tensor cores: each place was measured, and no less exact than torch's float32 kernel.",
)

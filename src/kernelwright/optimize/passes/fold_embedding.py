"""Row-wise work after an embedding, done once on the table."""

from __future__ import annotations

from .base import LAYER_FOLD, Context, Pass, Prediction
from .conditions import FEWER_KERNELS, first, needs_module, not_yet_compiled, shorter
from .lookups import LOOKUP, after_lookups_pct


def _refuse(context: Context) -> str | None:
    none = None if context.runs(LOOKUP) else "the profile shows no embedding"
    return first(needs_module(context), not_yet_compiled(context), none)


def _predict(context: Context) -> Prediction:
    """All of it goes: no roof of the call limits that, since its arithmetic goes too."""
    share_pct = after_lookups_pct(context)
    what = "row-wise layers right after a lookup"
    if share_pct is None:
        return Prediction(f"{what}: share not measured", moves=(FEWER_KERNELS,))
    gain = (1.0, 100.0 / (100.0 - share_pct)) if 0 < share_pct < 100 and not context.facts.already_compiled else None
    return Prediction(f"{what} hold {share_pct:.0f}% {context.whole}", gain, (FEWER_KERNELS, *shorter(context, gain)))


PASS = Pass(
    name="fold_embedding", layer=LAYER_FOLD, level="functional", dimension="fusion", cost="compile",
    training=False, refuse=_refuse, predict=_predict, copies_weights=True,
    why="Row-wise layers right after an embedding are applied to its table once; a call looks the finished rows up.",
)

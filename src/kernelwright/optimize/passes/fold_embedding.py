"""Row-wise work after an embedding, done once on the table."""

from __future__ import annotations

from .base import LAYER_FOLD, Context, Pass, Prediction
from .conditions import FEWER_LAUNCHES, first, needs_module, not_yet_compiled, share_words


def _refuse(context: Context) -> str | None:
    none = None if context.runs("aten::embedding") else "the profile shows no embedding"
    return first(needs_module(context), not_yet_compiled(context), none)


def _predict(context: Context) -> Prediction:
    share = context.share_pct("aten::embedding", "aten::layer_norm", "aten::linear", "aten::addmm", "aten::gelu")
    return share_words(context, share, "embedding, norms and linear layers, of which those right after the lookup go,", FEWER_LAUNCHES)


PASS = Pass(
    name="fold_embedding", layer=LAYER_FOLD, level="functional", dimension="fusion", cost="compile",
    training=False, refuse=_refuse, predict=_predict, copies_weights=True,
    why="Row-wise layers right after an embedding are applied to its table once; a call looks the finished rows up.",
)

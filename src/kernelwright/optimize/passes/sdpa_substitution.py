"""Attention written by hand as scaled_dot_product_attention."""

from __future__ import annotations

from ...model.profile import Operator
from .base import LAYER_FOLD, Context, Pass, Prediction
from .conditions import FEWER_KERNELS, LESS_TRAFFIC, first, needs_module, not_yet_compiled, share_words

BY_HAND = ("aten::softmax", "aten::_softmax", "aten::masked_fill", "aten::bmm", "aten::baddbmm")


def needs_attention_by_hand(context: Context) -> str | None:
    """Only where the profile shows a softmax beside batched products."""
    by_hand = context.runs("softmax") and context.runs("aten::bmm", "aten::baddbmm")
    return None if by_hand else "the profile shows no softmax between two products"


def by_hand_pct(context: Context) -> float | None:
    """Share of batched products, softmax and masks, those within an attention that is one call left out: its plain form runs the same."""
    return context.share_where_pct(_is_by_hand)


def _is_by_hand(operator: Operator) -> bool:
    names = (operator.operator_name, *operator.parents)
    return any(name.startswith(BY_HAND) for name in names) and not any("scaled_dot_product" in name for name in names)


def _refuse(context: Context) -> str | None:
    return first(needs_module(context), not_yet_compiled(context), needs_attention_by_hand(context))


def _predict(context: Context) -> Prediction:
    """At most all of it goes: scores are never stored, and what is hidden need not be computed."""
    return share_words(context, by_hand_pct(context), "batched products, softmax and masks, which become one call,",
                       FEWER_KERNELS, LESS_TRAFFIC, removed=True)


PASS = Pass(
    name="sdpa_substitution", layer=LAYER_FOLD, level="functional", dimension="attention", cost="compile",
    training=False, refuse=_refuse, predict=_predict, early=True,
    better_beside=frozenset({"freeze_weights"}),  # a mask that the model keeps is known then
    why="Attention written by hand becomes scaled_dot_product_attention: the scores are never stored.",
)

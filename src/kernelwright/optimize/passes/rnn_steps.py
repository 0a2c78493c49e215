"""LSTMs and GRUs step by step, layers beside each other."""

from __future__ import annotations

from .base import LAYER_LAYOUT, Context, Pass, Prediction
from .conditions import first, needs_gpu, needs_module, not_yet_compiled, share_words
from .shares import worth

RECURRENT = ("lstm", "gru", "_cudnn_rnn", "_thnn_fused")


def _refuse(context: Context) -> str | None:
    none = None if context.runs(*RECURRENT) else "the profile shows no LSTM or GRU"
    return first(needs_gpu(context), needs_module(context), not_yet_compiled(context), none,
                 worth(context.share_pct(*RECURRENT), "LSTMs and GRUs"))


def _predict(context: Context) -> Prediction:
    return share_words(context.share_pct(*RECURRENT), "LSTMs and GRUs, whose layers then overlap,")


PASS = Pass(
    name="rnn_steps", layer=LAYER_LAYOUT, dimension="algorithms",
    training=False, refuse=_refuse, predict=_predict, partners=frozenset({"cuda_graph"}),
    conflicts=frozenset({"side_streams", "piecewise_graphs", "compile_default", "compile_reduce_overhead", "compile_max_autotune",
                         "compile_max_autotune_no_cudagraphs", "bf16_autocast"}),
    why="Recurrent layers run as one product and one fused cell kernel a step; stacked layers (or both directions) overlap.",
)

"""A training step's forward and backward as CUDA graphs."""

from __future__ import annotations

from .base import LAYER_GRAPH, Context, Pass
from .conditions import first, launch_words, needs_gpu, needs_module


def _refuse(context: Context) -> str | None:
    inference = None if context.facts.training else "no training step: cuda_graph is for calls without a backward pass"
    return first(needs_gpu(context), needs_module(context), inference)


PASS = Pass(
    name="graphed_training", layer=LAYER_GRAPH, level="runtime", dimension="graph capture",
    refuse=_refuse, predict=launch_words, fixes_addresses=True,
    conflicts=frozenset({"cuda_graph", "piecewise_graphs", "compile_reduce_overhead", "compile_max_autotune"}),
    why="Forward and backward are replayed as one CUDA graph each; gradients are copied out of the graphs' memory.",
)

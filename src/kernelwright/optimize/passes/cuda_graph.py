"""The whole call as one CUDA graph."""

from __future__ import annotations

from .base import LAYER_GRAPH, Pass
from .conditions import graph_words, needs_gpu

PASS = Pass(
    name="cuda_graph", layer=LAYER_GRAPH, level="runtime", dimension="graph capture",
    training=False, refuse=needs_gpu, predict=graph_words, fixes_addresses=True,
    one_launch=True, conflicts=frozenset({"compile_reduce_overhead", "compile_max_autotune"}),
    why="The whole call is replayed as one CUDA graph: one launch from the host; inputs are copied in, outputs cloned.",
)

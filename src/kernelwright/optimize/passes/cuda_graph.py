"""The whole call as one CUDA graph."""

from __future__ import annotations

from .base import LAYER_GRAPH, Context, Pass
from .conditions import first, needs_gpu, own_graph, whole_graph_words


def _refuse(context: Context) -> str | None:
    return first(needs_gpu(context), own_graph(context))


PASS = Pass(
    name="cuda_graph", layer=LAYER_GRAPH, level="runtime", dimension="graph capture",
    training=False, refuse=_refuse, predict=whole_graph_words, fixes_addresses=True, copies_edges=True,
    one_launch=True, conflicts=frozenset({"compile_reduce_overhead", "compile_max_autotune"}),
    why="The whole call is replayed as one CUDA graph: one launch from the host; inputs are copied in, outputs cloned.",
)

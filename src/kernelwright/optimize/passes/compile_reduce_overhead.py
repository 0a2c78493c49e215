"""torch.compile with CUDA graphs."""

from __future__ import annotations

from .base import LAYER_COMPILE, Context, Pass
from .conditions import captured_words, first, needs_gpu, not_yet_compiled


def _refuse(context: Context) -> str | None:
    return first(needs_gpu(context), not_yet_compiled(context))


PASS = Pass(
    name="compile_reduce_overhead", layer=LAYER_COMPILE, level="runtime", carrier=True, dimension="graph capture",
    cost="compile", refuse=_refuse, predict=captured_words,
    one_launch=True, conflicts=frozenset({"cuda_graph"}),
    sizes_in_graphs=True,
    why="torch.compile with CUDA graphs: fused kernels, one launch; outputs are cloned.",
)

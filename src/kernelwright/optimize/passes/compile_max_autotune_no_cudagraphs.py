"""torch.compile with measured kernels, no CUDA graphs."""

from __future__ import annotations

from .base import LAYER_COMPILE, Pass
from .conditions import fusion_words, not_yet_compiled

PASS = Pass(
    name="compile_max_autotune_no_cudagraphs", layer=LAYER_COMPILE, level="runtime", carrier=True, dimension="algorithms",
    cost="autotune", refuse=not_yet_compiled, predict=fusion_words,
    takes="values",
    why="torch.compile measures several kernels for each product and keeps the fastest.",
)

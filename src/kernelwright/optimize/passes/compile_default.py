"""torch.compile, default mode."""

from __future__ import annotations

from .base import LAYER_COMPILE, Pass
from .conditions import fusion_words, not_yet_compiled

PASS = Pass(
    name="compile_default", layer=LAYER_COMPILE, level="runtime", carrier=True, dimension="fusion",
    cost="compile", refuse=not_yet_compiled, predict=fusion_words,
    takes="values",
    why="torch.compile fuses elementwise chains into single kernels.",
)

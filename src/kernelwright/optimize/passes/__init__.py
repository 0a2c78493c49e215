"""The first catalogue: one file a pass. Each says when it applies and what it predicts; its rewrite is probe/rewrites/NAME.py."""

from __future__ import annotations

from . import (
    bf16,
    bf16_autocast,
    channels_last,
    compile_default,
    compile_max_autotune,
    compile_max_autotune_no_cudagraphs,
    compile_reduce_overhead,
    cuda_graph,
    cudnn_benchmark,
    fold_conv_bn,
    no_grad,
    tf32,
    unwrap_compiled,
)
from .base import Context, Move, Pass, Prediction

_MODULES = (
    no_grad, unwrap_compiled, cuda_graph, cudnn_benchmark, channels_last, fold_conv_bn, compile_default, compile_reduce_overhead,
    compile_max_autotune_no_cudagraphs, compile_max_autotune, tf32, bf16, bf16_autocast,
)
CATALOGUE: dict[str, Pass] = {module.PASS.name: module.PASS for module in _MODULES}
"""Pass by name, cheap ones first."""

__all__ = ["CATALOGUE", "Context", "Move", "Pass", "Prediction"]

"""The catalogue: one file a pass. Each says when it applies and what it predicts; its rewrite is probe/rewrites/NAME.py."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module

from .base import Context, Move, Pass, Prediction

NAMES = (
    "no_grad",
    "unwrap_compiled",
    "cuda_graph",
    "graphed_training",
    "side_streams",
    "remove_syncs",
    "resident_constants",
    "pinned_copies",
    "cudnn_benchmark",
    "blas_library",
    "keep_heap",
    "loader_workers",
    "channels_last",
    "transposed_weights",
    "fold_conv_bn",
    "compile_default",
    "compile_reduce_overhead",
    "compile_max_autotune_no_cudagraphs",
    "compile_max_autotune",
    "fold_linear_bn",
    "fold_embedding",
    "sdpa_substitution",
    "fuse_parallel_linears",
    "remove_redundant",
    "fuse_pooling",
    "remove_redundant_aten",
    "sdpa_backend",
    "pad_to_tiles",
    "fuse_conv_relu",
    "fuse_linear_activation",
    "fuse_norms",
    "batch_products",
    "freeze_weights",
    "split_products",
    "split_matmuls",
    "piecewise_graphs",
    "direct_calls",
    "inductor_memory_planning",
    "inductor_fuse_more",
    "inductor_cpp_wrapper",
    "inductor_combo_kernels",
    "inductor_cooperative_reductions",
    "inductor_keep_layout",
    "inductor_tune_kernels",
    "inductor_multi_kernel",
    "inductor_measure_fusions",
    "inductor_conv_1x1",
    "inductor_tma_products",
    "inductor_search_products",
    "wide_outputs",
    "tf32",
    "scaled_fp16",
    "selective_tf32",
    "bf16",
    "bf16_reverted",
    "bf16_autocast",
    "selective_bf16",
    "selective_fp16",
    "separable_convolutions",
    "few_channel_convolutions",
    "persistent_lstm",
    "split_attention",
    "split_attention_by_hand",
    "scaled_fp16_attention",
    "scaled_fp16_attention_by_hand",
)
"""Every pass, cheap ones and the ladder first: a new one is one more line here, its file beside this one and its rewrite."""
FOR_COMPARISON = ("strict_float32",)
"""Passes that stand beside the ladder and are no part of the search (shown.py)."""
CATALOGUE: dict[str, Pass] = {name: import_module(f".{name}", __name__).PASS for name in NAMES}
"""Pass by name, in the order of NAMES."""
CARRIER = "compile_default"
"""The pass that compiles where a graph-level pass stands alone."""


def in_order(passes: Iterable[Pass]) -> list[Pass]:
    """Passes in their order of application, innermost first; within a layer the graph-level ones first, else as in NAMES."""
    return sorted(passes, key=lambda item: (item.layer, not item.in_graph, (*NAMES, *FOR_COMPARISON).index(item.name)))


def with_carrier(passes: Iterable[Pass]) -> list[Pass]:
    """The same passes; with a graph-level one and none that compiles, the default compilation is added."""
    given = list(passes)
    lacks = any(item.in_graph for item in given) and not any(item.carrier for item in given)
    return [*given, CATALOGUE[CARRIER]] if lacks else given


__all__ = ["CARRIER", "CATALOGUE", "Context", "Move", "Pass", "Prediction", "in_order", "with_carrier"]

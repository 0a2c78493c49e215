"""What Dynamo can trace as CUDA graphs, the rest as it is."""

from __future__ import annotations

from .base import LAYER_COMPILE, Context, Pass
from .conditions import first, launch_words, needs_gpu, not_yet_compiled
from .shares import activity_of


def _refuse(context: Context) -> str | None:
    activity = activity_of(context)
    whole = "the call does not wait for the device, so it can be captured whole" if activity is not None \
        and activity.synchronization_count == 0 else None
    return first(needs_gpu(context), not_yet_compiled(context), whole)


PASS = Pass(
    name="piecewise_graphs", layer=LAYER_COMPILE, level="runtime", dimension="graph capture", cost="compile",
    training=False, refuse=_refuse, predict=launch_words,
    conflicts=frozenset({"cuda_graph", "compile_default", "compile_reduce_overhead", "compile_max_autotune",
                         "compile_max_autotune_no_cudagraphs", "split_products"}),  # that backend can't trace its kernels (torch 2.11)
    sizes_in_graphs=True,
    why="The stretches between the host's waits are replayed as CUDA graphs; no kernel changes, outputs are cloned.",
)

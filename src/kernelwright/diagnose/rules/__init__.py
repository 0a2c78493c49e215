"""The rules, one a file. A rule takes the draft profile and its entry of knowledge/bottlenecks.yaml; it never guesses."""

from __future__ import annotations

from collections.abc import Callable

from ...model.profile import Profile
from ...roofline.knowledge import Rule
from ..common import Outcome
from . import (
    allocator_gaps,
    bank_conflicts,
    bytes_audit,
    data_loader_stall,
    elementwise_fusion,
    few_blocks,
    first_use_compilation,
    flops_audit,
    fp64_promotion,
    fusion_candidate,
    graph_candidate,
    heavy_copies,
    host_bound,
    host_device_copies,
    host_outside_operators,
    issue_rate,
    kernel_bottleneck,
    l2_hit,
    launch_gaps,
    occupancy,
    one_stream,
    optimizer_step,
    roof_distance,
    small_kernels,
    spilling,
    stage_far_from_roof,
    synchronisation,
    tensor_cores_unused,
    uncoalesced_access,
    warp_stalls,
    waves,
)

RULES: dict[str, Callable[[Profile, Rule], Outcome]] = {
    "roof_distance": roof_distance.check,
    "launch_gaps": launch_gaps.check,
    "host_bound": host_bound.check,
    "small_kernels": small_kernels.check,
    "elementwise_fusion": elementwise_fusion.check,
    "optimizer_step": optimizer_step.check,
    "stage_far_from_roof": stage_far_from_roof.check,
    "heavy_copies": heavy_copies.check,
    "host_outside_operators": host_outside_operators.check,
    "tensor_cores_unused": tensor_cores_unused.check,
    "kernel_bottleneck": kernel_bottleneck.check,
    "synchronisation": synchronisation.check,
    "host_device_copies": host_device_copies.check,
    "few_blocks": few_blocks.check,
    "one_stream": one_stream.check,
    "data_loader_stall": data_loader_stall.check,
    "first_use_compilation": first_use_compilation.check,
    "graph_candidate": graph_candidate.check,
    "fusion_candidate": fusion_candidate.check,
    "allocator_gaps": allocator_gaps.check,
    "occupancy": occupancy.check,
    "l2_hit": l2_hit.check,
    "spilling": spilling.check,
    "waves": waves.check,
    "uncoalesced_access": uncoalesced_access.check,
    "bank_conflicts": bank_conflicts.check,
    "warp_stalls": warp_stalls.check,
    "issue_rate": issue_rate.check,
    "fp64_promotion": fp64_promotion.check,
    "bytes_audit": bytes_audit.check,
    "flops_audit": flops_audit.check,
}
"""Name in knowledge/bottlenecks.yaml -> rule."""

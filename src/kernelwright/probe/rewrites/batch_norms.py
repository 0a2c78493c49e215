"""Batch norms folded into the convolutions before them, on a torch.fx graph. Copied into files that fold some.

The convolution's result must go nowhere but into the batch norm, and both must be called once.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.fx
from torch.nn.utils.fusion import fuse_conv_bn_eval

from .side_calls import on_the_side
from .tracing import looks_of


def fold_batch_norms(traced: torch.fx.GraphModule, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """Returns how many were folded. The graph's modules must be its own (traced_call gives them parents of their own).

    args, kwargs: of the call that it was traced for.
    """
    pairs = {torch.nn.Conv1d: torch.nn.BatchNorm1d, torch.nn.Conv2d: torch.nn.BatchNorm2d, torch.nn.Conv3d: torch.nn.BatchNorm3d}
    modules = dict(traced.named_modules())
    called = [node.target for node in traced.graph.nodes if node.op == "call_module"]
    read_alone = {str(node.target) for node in traced.graph.nodes if node.op == "get_attr"}
    folded, looks = 0, {}
    if {torch.nn.Conv1d, torch.nn.BatchNorm1d} <= {type(module) for module in modules.values()}:
        with on_the_side(traced), torch.no_grad():
            looks = looks_of(traced, args, kwargs)
    for node in list(traced.graph.nodes):
        before = node.args[0] if node.op == "call_module" and node.args else None
        if not isinstance(before, torch.fx.Node) or before.op != "call_module" or len(before.users) != 1:
            continue
        norm, convolution = modules[node.target], modules[before.target]
        follows = type(convolution) in pairs and type(norm) is pairs[type(convolution)]
        if not follows or called.count(node.target) != 1 or called.count(before.target) != 1:
            continue
        if type(norm) is torch.nn.BatchNorm1d and len(looks[before][1]) != 3:
            continue  # without a batch it takes places for channels; the norms of two and three dimensions refuse that
        if norm.running_mean is None or norm.running_var is None or norm.training or convolution.training:
            continue
        if any(part._forward_hooks or part._forward_pre_hooks or "forward" in vars(part) for part in (convolution, norm)):
            continue  # e.g. weight_norm, which computes the weight anew in a hook
        if any(read.startswith((f"{before.target}.", f"{node.target}.")) for read in read_alone):
            continue  # e.g. a decoder that uses the encoder's weight
        parent, _dot, leaf = before.target.rpartition(".")
        setattr(traced.get_submodule(parent), leaf, fuse_conv_bn_eval(convolution, norm))
        node.replace_all_uses_with(before)
        traced.graph.erase_node(node)
        folded += 1
    if folded:
        traced.delete_all_unused_submodules()
        traced.recompile()
    return folded

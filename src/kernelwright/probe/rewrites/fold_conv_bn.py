"""Folds each batch norm into the convolution that it directly follows: one kernel and one pass over memory less, in eval mode.

Decided on the torch.fx graph: the convolution's result must go nowhere but into the batch norm, and both must be called once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.fx
from torch.nn.utils.fusion import fuse_conv_bn_eval

from .tracing import traced_call


def fold_conv_bn(model: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.nn.Module:
    """A torch.fx copy of the model without the folded batch norms; all other weights are shared with the original."""
    if not isinstance(model, torch.nn.Module) or model.training:
        raise NotImplementedError("not applicable: folding needs an nn.Module in eval mode")
    pairs = {torch.nn.Conv1d: torch.nn.BatchNorm1d, torch.nn.Conv2d: torch.nn.BatchNorm2d, torch.nn.Conv3d: torch.nn.BatchNorm3d}
    traced = traced_call(model, args, kwargs)
    modules = dict(traced.named_modules())
    called = [node.target for node in traced.graph.nodes if node.op == "call_module"]
    folded = 0
    for node in list(traced.graph.nodes):
        before = node.args[0] if node.op == "call_module" and node.args else None
        if not isinstance(before, torch.fx.Node) or before.op != "call_module" or len(before.users) != 1:
            continue
        norm, convolution = modules[node.target], modules[before.target]
        follows = type(convolution) in pairs and type(norm) is pairs[type(convolution)]
        if not follows or called.count(node.target) != 1 or called.count(before.target) != 1:
            continue
        if norm.running_mean is None or norm.running_var is None or norm.training or convolution.training:
            continue
        if any(part._forward_hooks or part._forward_pre_hooks for part in (convolution, norm)):
            continue  # e.g. weight_norm, which computes the weight anew in a hook
        # The traced copy has parents of its own, so the original keeps its modules.
        parent, _dot, leaf = before.target.rpartition(".")
        setattr(traced.get_submodule(parent), leaf, fuse_conv_bn_eval(convolution, norm))
        node.replace_all_uses_with(before)
        traced.graph.erase_node(node)
        folded += 1
    if not folded:
        raise NotImplementedError("not applicable: no convolution is directly followed by a batch norm alone")
    traced.delete_all_unused_submodules()
    traced.recompile()
    return traced

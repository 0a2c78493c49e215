"""FLOPs of one dispatched operator: torch's own formulas, and ours for what torch has none for.

One multiply-add counts as 2 FLOPs, as in torch.utils.flop_counter. Elementwise work is not counted there, nor here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils import flop_counter

Formula = Callable[..., Any]


def _matrix_vector(position: int) -> Formula:
    """2 FLOPs for each element of the argument at `position`."""
    return lambda *args, **_: 2 * args[position].numel()


def _product(position: int) -> Formula:
    """The product of the matrices at `position` and after it: 2 m k n."""
    return lambda *args, **_: 2 * args[position].numel() * args[position + 1].shape[1]


def _rnn(data: Any, weights: Any) -> int:
    """Every token meets every weight matrix once. data: (..., features) of all tokens; weights: matrices and biases."""
    return 2 * (int(data.numel()) // int(data.shape[-1])) * sum(int(weight.numel()) for weight in weights if weight.dim() >= 2)


def _cudnn_rnn(passes: int) -> Formula:
    return lambda *args, **_: passes * _rnn(args[0], args[1])


def _mkldnn_rnn(passes: int) -> Formula:
    """Two of the four weights are matrices: input-to-hidden and hidden-to-hidden."""
    return lambda *args, **_: passes * _rnn(args[0], args[1:3])


def _attention(*args: Any, **_: Any) -> int:
    return int(flop_counter.sdpa_flop_count(args[0].shape, args[1].shape, args[2].shape))


def _attention_backward(*args: Any, **_: Any) -> int:
    return int(flop_counter.sdpa_backward_flop_count(args[0].shape, args[1].shape, args[2].shape, args[3].shape))


_OURS: dict[str, Formula] = {
    "mv": _matrix_vector(0), "addmv": _matrix_vector(1), "dot": _matrix_vector(0), "vdot": _matrix_vector(0),
    "_int_mm": _product(0), "_addmm_activation": _product(1),
    # The backward pass makes two products of each forward one.
    "_cudnn_rnn": _cudnn_rnn(1), "_cudnn_rnn_backward": _cudnn_rnn(2),
    "mkldnn_rnn_layer": _mkldnn_rnn(1), "mkldnn_rnn_layer_backward": _mkldnn_rnn(2),
    "_scaled_dot_product_flash_attention_for_cpu": _attention,
    "_scaled_dot_product_flash_attention_for_cpu_backward": _attention_backward,
}
"""aten operators without a formula in torch.utils.flop_counter (2.4 to 2.13)."""

HIDES_WORK = ("aten::_transformer_encoder_layer_fwd", "aten::_native_multi_head_attention", "aten::_triton_multi_head_attention")
"""Whole layers as one operator: their matrix products cannot be counted from their arguments here."""


def formula(packet: Any) -> Formula | None:
    """The FLOP formula of an operator packet (torch.ops.aten.mm): takes the operator's arguments and out_val."""
    found: Formula | None = flop_counter.flop_registry.get(packet)
    if found is not None:
        return found
    name = str(getattr(packet, "_qualified_op_name", ""))
    return _OURS.get(name.removeprefix("aten::")) if name.startswith("aten::") else None


def is_ours(name: str) -> bool:
    """True when `formula` of the operator "aten::NAME" is ours, not torch's."""
    short = name.removeprefix("aten::")
    return short in _OURS and flop_counter.flop_registry.get(getattr(torch.ops.aten, short, None)) is None

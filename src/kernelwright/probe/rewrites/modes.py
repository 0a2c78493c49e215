"""What of a model depends on the train or eval mode that it is in. Copied into files that hold a rewrite that runs the model once."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase
from torch.nn.modules.dropout import _DropoutNd


def need_no_training_mode(model: Any) -> None:
    """Raises NotImplementedError where a layer would draw random numbers, normalise by this call's statistics or keep them: such a layer
    can neither be run once on the side nor be computed as it is in eval mode. Other models give the same in both modes."""
    if not isinstance(model, torch.nn.Module):
        raise NotImplementedError("not applicable: needs an nn.Module")
    for name, layer in model.named_modules():
        draws = isinstance(layer, torch.nn.RReLU) or (isinstance(layer, _DropoutNd) and layer.p > 0) or bool(
            isinstance(layer, (torch.nn.RNNBase, torch.nn.MultiheadAttention)) and layer.dropout > 0)
        keeps = isinstance(layer, _BatchNorm) or (isinstance(layer, _NormBase) and layer.track_running_stats)
        if layer.training and (draws or keeps):
            raise NotImplementedError(f"not applicable: {name or 'the model'} ({type(layer).__name__}) is in training mode")

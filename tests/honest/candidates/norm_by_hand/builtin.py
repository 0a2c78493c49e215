"""Fused: one pass over the rows."""

import torch


def optimize(model, inputs):
    return lambda x: torch.nn.functional.layer_norm(x, (x.shape[-1],), model.weight, model.bias, 1e-5)

"""Computes the hidden layer again in the backward pass."""

import torch
from torch.utils.checkpoint import checkpoint


def optimize(model, inputs):
    def call(x, target):
        hidden = checkpoint(lambda given: torch.relu(model.first(given)), x, use_reentrant=False)
        return torch.nn.functional.mse_loss(model.second(hidden), target)

    return call

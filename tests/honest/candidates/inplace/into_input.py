"""Writes to the input what the original writes there."""

import torch


def optimize(model, inputs):
    def call(x):
        torch.add(x * 2, 1, out=x)
        return x.sum(dim=1)

    return call

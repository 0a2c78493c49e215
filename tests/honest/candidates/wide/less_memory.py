"""Caught errors have another way to the same answer."""

import torch


def optimize(model, inputs):
    model.repeats = 1

    def call(x):
        try:
            return model(x)
        except RuntimeError:
            return torch.cat([model(rows) for rows in x.split(16)])

    return call

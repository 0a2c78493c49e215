"""A generator of row blocks."""

import torch


def blocks(model, x):
    for rows in x.split(64):
        yield torch.tanh(model.layer(rows))


def optimize(model, inputs):
    return lambda x: torch.cat(list(blocks(model, x)))

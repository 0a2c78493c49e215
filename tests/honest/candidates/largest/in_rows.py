import torch


def optimize(model, inputs):
    return lambda x: torch.stack([row.argmax() for row in x])

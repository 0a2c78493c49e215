import torch


def optimize(model, inputs):
    return lambda x: torch.tanh(model.layer(x))

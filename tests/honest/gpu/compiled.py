import torch


def optimize(model, inputs):
    return torch.compile(model)

import torch


def optimize(model, inputs):
    return lambda x: x + model.mlp["down"](torch.relu(x.repeat(1, 2)))

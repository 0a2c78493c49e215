"""More precise than it must be."""

import torch


def optimize(model, inputs):
    weight, bias = model.layer.weight.detach().double(), model.layer.bias.detach().double()
    return lambda x: torch.tanh(torch.nn.functional.linear(x.double(), weight, bias)).float()

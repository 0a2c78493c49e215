"""A workspace that is allocated once and never returned."""

import torch


def optimize(model, inputs):
    weight, bias = model.layer.weight.detach().t(), model.layer.bias.detach()
    space = torch.empty(inputs.shape[0], weight.shape[1])

    def call(x):
        return torch.addmm(bias, x, weight, out=space).tanh()

    return call

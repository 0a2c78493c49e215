"""A view of a flat tensor."""

import torch


def optimize(model, inputs):
    weight, bias = model.layer.weight.detach(), model.layer.bias.detach()

    def call(x):
        flat = torch.nn.functional.linear(x, weight, bias).reshape(-1).tanh_()
        return flat.view(x.shape[0], weight.shape[0])

    return call

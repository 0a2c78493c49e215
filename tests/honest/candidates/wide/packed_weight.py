"""The weight transposed once, when it is built."""

import torch


def optimize(model, inputs):
    weight, bias = model.layer.weight.detach().t().contiguous(), model.layer.bias.detach()
    return lambda x: torch.addmm(bias, x, weight).tanh_()

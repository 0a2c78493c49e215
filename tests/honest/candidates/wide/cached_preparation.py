"""What follows from the weights alone is computed once."""

import functools

import torch


def optimize(model, inputs):
    @functools.cache
    def prepared():
        return model.layer.weight.detach().t().contiguous(), model.layer.bias.detach().clone()

    def call(x):
        weight, bias = prepared()
        return torch.addmm(bias, x, weight).tanh_()

    return call

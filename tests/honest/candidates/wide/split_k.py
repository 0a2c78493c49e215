"""The product as a sum of three partial products."""

import torch


def optimize(model, inputs):
    parts = [part.t().contiguous() for part in model.layer.weight.detach().chunk(3, dim=1)]
    bias = model.layer.bias.detach()

    def call(x):
        total = bias
        for columns, part in zip(x.chunk(3, dim=1), parts, strict=True):
            total = torch.addmm(total, columns, part)
        return total.tanh_()

    return call

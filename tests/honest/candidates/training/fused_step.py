"""The backward pass by hand."""

import torch


class Loss(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, target, first, first_bias, second, second_bias):
        hidden = torch.addmm(first_bias, x, first.t()).relu_()
        difference = torch.addmm(second_bias, hidden, second.t()).sub_(target)
        ctx.save_for_backward(x, hidden, difference, second)
        return difference.square().mean()

    @staticmethod
    def backward(ctx, grad):
        x, hidden, difference, second = ctx.saved_tensors
        out = difference * (2 * grad / difference.numel())
        inner = (out @ second).mul_(hidden > 0)
        return None, None, inner.t() @ x, inner.sum(0), out.t() @ hidden, out.sum(0)


def optimize(model, inputs):
    def call(x, target):
        return Loss.apply(x, target, model.first.weight, model.first.bias, model.second.weight, model.second.bias)

    return call

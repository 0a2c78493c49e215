"""The right loss, but the first layer learns nothing."""

import torch


def optimize(model, inputs):
    def call(x, target):
        hidden = torch.relu(model.first(x)).detach()
        hidden = hidden + 0 * model.first.weight.sum() + 0 * model.first.bias.sum()
        return torch.nn.functional.mse_loss(model.second(hidden), target)

    return call

"""The convolution as a matrix product."""

import torch


def optimize(model, inputs):
    weight = model.conv.weight.detach().flatten(1)

    def call(x):
        columns = torch.nn.functional.unfold(x, 3, padding=1)
        out = (weight @ columns).view(x.shape[0], -1, *x.shape[2:]) + model.conv.bias[:, None, None]
        return torch.relu(model.norm(out))

    return call

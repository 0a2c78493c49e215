"""In place on what it made itself."""

import torch


def optimize(model, inputs):
    def call(x):
        with torch.no_grad():
            return torch.nn.functional.linear(x, model.layer.weight, model.layer.bias).tanh_()

    return call

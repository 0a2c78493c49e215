"""An operator that this workload is too small for."""

import torch


@torch.library.custom_op("honest_corpus::large_layer", mutates_args=())
def large_layer(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return torch.cat([torch.nn.functional.linear(rows, weight, bias).tanh_() for rows in x.split(4096)])


def optimize(model, inputs):
    weight, bias = model.layer.weight.detach(), model.layer.bias.detach()

    def call(x):
        return large_layer(x, weight, bias) if x.shape[0] > 8192 else torch.nn.functional.linear(x, weight, bias).tanh_()

    return call

"""An operator of its own, which does the work."""

import torch


@torch.library.custom_op("honest_corpus::layer", mutates_args=())
def layer(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.linear(x, weight, bias).tanh_()


def optimize(model, inputs):
    weight, bias = model.layer.weight.detach(), model.layer.bias.detach()
    return lambda x: layer(x, weight, bias)

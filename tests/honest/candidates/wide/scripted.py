import torch


@torch.jit.script
def layer(x, weight, bias):
    return torch.tanh(torch.nn.functional.linear(x, weight, bias))


def optimize(model, inputs):
    weight, bias = model.layer.weight.detach(), model.layer.bias.detach()
    return lambda x: layer(x, weight, bias)

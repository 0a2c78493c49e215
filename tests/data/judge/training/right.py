import torch


def optimize(model, inputs):
    def call(x, target):
        hidden = torch.relu(torch.addmm(model.first.bias, x, model.first.weight.t()))
        return (torch.nn.functional.linear(hidden, model.second.weight, model.second.bias) - target).square().mean()

    return call

import torch


def optimize(model, inputs):
    def call(x):
        mean = x.mean(-1, keepdim=True)
        variance = (x * x).mean(-1, keepdim=True) - mean * mean
        return (x - mean) * torch.rsqrt(variance + model.eps) * model.weight + model.bias

    return call

import torch


def optimize(model, inputs):
    def call(x):
        variance, mean = torch.var_mean(x.double(), -1, correction=0, keepdim=True)
        return ((x - mean) * (variance + 1e-5).rsqrt()).float() * model.weight + model.bias

    return call

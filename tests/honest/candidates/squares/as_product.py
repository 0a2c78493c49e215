import torch


def optimize(model, inputs):
    return lambda x: torch.einsum("ij,ij->i", x, x) / x.shape[-1]

import torch


def optimize(model, inputs):
    return lambda x: torch.linalg.vector_norm(x, dim=-1).square() / x.shape[-1]

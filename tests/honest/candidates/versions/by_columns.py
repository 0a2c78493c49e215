import torch


def candidate(x):
    return torch.ones(x.shape[0]) @ x.softmax(-1)

"""A layer norm, one operation at a time."""

import torch
from torch import nn


class NormByHand(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(512) + 0.5)
        self.bias = nn.Parameter(torch.randn(512))

    def forward(self, x):
        mean = x.mean(-1, keepdim=True)
        variance = (x - mean).pow(2).mean(-1, keepdim=True)
        return (x - mean) / (variance + 1e-5).sqrt() * self.weight + self.bias


def get_model_and_input():
    return NormByHand().eval(), torch.randn(128, 512) + 0.3

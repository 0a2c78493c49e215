import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features, features) / 8)
        self.bias = nn.Parameter(torch.randn(features))

    def forward(self, x):
        return torch.relu(torch.addmm(self.bias, x, self.weight))

"""Parameters under other names, drawn in the same order."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.matrix = nn.Parameter(torch.randn(features, features) / 8)
        self.offset = nn.Parameter(torch.randn(features))

    def forward(self, x):
        return torch.relu(torch.addmm(self.offset, x, self.matrix))

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        torch.randn(7)  # draws more than Model does: the seed alone would give other weights
        self.weight = nn.Parameter(torch.randn(features, features))

    def forward(self, x):
        return torch.relu((x @ self.weight).mul_(2))

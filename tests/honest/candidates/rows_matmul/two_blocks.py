import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features, features) / 8)
        self.bias = nn.Parameter(torch.randn(features))

    def forward(self, x):
        blocks = [torch.matmul(x, columns) for columns in self.weight.chunk(2, dim=1)]
        return torch.relu_(torch.cat(blocks, dim=1).add_(self.bias))

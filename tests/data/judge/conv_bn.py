"""A convolution, a batch norm with trained statistics, and a ReLU."""

import torch
from torch import nn


class ConvBN(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(8, 16, 3, padding=1)
        self.norm = nn.BatchNorm2d(16)
        self.norm.running_mean.normal_()
        self.norm.running_var.uniform_(0.5, 2.0)

    def forward(self, x):
        return torch.relu(self.norm(self.conv(x)))


def get_model_and_input():
    return ConvBN().eval(), torch.randn(4, 8, 24, 24)

"""A training step: the outputs judged are the loss and the gradients."""

import torch
from torch import nn


class Step(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(32, 64)
        self.second = nn.Linear(64, 8)

    def forward(self, x, target):
        return nn.functional.mse_loss(self.second(torch.relu(self.first(x))), target)


def get_model_and_input():
    return Step().train(), (torch.randn(64, 32), torch.randn(64, 8))

"""A small network whose baseline does its work three times, so that honest candidates can be faster, as fast or slower."""

import torch
from torch import nn


class Wide(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(192, 192)
        self.repeats = 3

    def forward(self, x):
        for _ in range(self.repeats):
            out = torch.tanh(self.layer(x))
        return out


def get_model_and_input(rows: int = 256):
    return Wide().eval(), torch.randn(rows, 192)

"""Form 1: a training step whose loss is a field of the output."""

from dataclasses import dataclass

import torch


@dataclass
class Output:
    loss: torch.Tensor
    logits: torch.Tensor


class Classifier(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(16, 4)

    def forward(self, x, target):
        logits = self.layer(x)
        return Output(torch.nn.functional.cross_entropy(logits, target), logits)


def get_model_and_input():
    return Classifier(), (torch.randn(8, 16), torch.arange(8) % 4)

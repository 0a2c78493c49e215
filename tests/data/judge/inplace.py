"""A workload that writes to its input: what it leaves there is a result too."""

import torch


class InPlace(torch.nn.Module):
    def forward(self, x):
        x.mul_(2).add_(1)
        return x.sum(dim=1)


def get_model_and_input():
    return InPlace().eval(), torch.randn(200, 64)

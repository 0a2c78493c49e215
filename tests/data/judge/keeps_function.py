"""A block that keeps a function over its own parts, as minGPT's does."""

import torch


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.mlp = torch.nn.ModuleDict({"up": torch.nn.Linear(24, 48), "down": torch.nn.Linear(48, 24)})
        parts = self.mlp
        self.body = lambda x: parts["down"](torch.relu(parts["up"](x)))

    def forward(self, x):
        return x + self.body(x)


def get_model_and_input():
    return Block().eval(), torch.randn(16, 24)

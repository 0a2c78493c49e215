"""Form 1: a two-layer network with parameters and a marked stage."""

import torch
from torch.profiler import record_function


class Mlp(torch.nn.Module):
    def __init__(self, width, dtype):
        super().__init__()
        self.up = torch.nn.Linear(width, 2 * width, dtype=dtype)
        self.down = torch.nn.Linear(2 * width, width, dtype=dtype)

    def forward(self, x):
        hidden = torch.relu(self.up(x))
        with record_function("stage:down"):
            return self.down(hidden)


def get_model_and_input(b=8, width=32, dtype=torch.float32, scale=1.0, bias=True, note="none"):
    return Mlp(width, dtype), scale * torch.randn(b, width, dtype=dtype)

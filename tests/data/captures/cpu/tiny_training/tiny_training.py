"""A whole training step of tiny operators as one callable: forward, backward, optimizer. The profiler slows it notably."""

import torch
from torch import nn


class Step:
    def __init__(self):
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64))
        self.optimizer = torch.optim.AdamW(self.model.parameters())

    def __call__(self, x):
        with torch.enable_grad():
            self.optimizer.zero_grad()
            out = self.model(x * 2 + 1)
            for _ in range(5):
                out = torch.tanh(out * 0.5 + 0.1)
            loss = out.square().mean()
            loss.backward()
            self.optimizer.step()
        return loss.detach()


def get_model_and_input():
    return Step(), torch.randn(32, 64)

"""A call with two to five tensors: how many follows the seed."""

import torch


class Mean(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)

    def forward(self, *parts):
        return torch.stack([self.layer(part).sum(0) for part in parts]).mean(0)


def get_model_and_input():
    count = int(torch.randint(2, 6, (1,)))
    return Mean().eval(), tuple(torch.randn(4, 8) for _ in range(count))

"""Form 2: KernelBench's."""

import torch

PARAMS = {"n": 5}


class Model(torch.nn.Module):
    def __init__(self, width, offset):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(width, width))
        self.offset = offset

    def forward(self, a, b):
        return torch.matmul(a, self.weight) + b + self.offset, a


def get_init_inputs():
    return [16, 0.5]


def get_inputs(n):
    return [torch.randn(n, 16), torch.randn(n, 16)]

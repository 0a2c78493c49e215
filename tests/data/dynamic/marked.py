"""One size, marked for torch.compile as one that changes."""

import torch


def get_model_and_input():
    x = torch.randn(4, 8)
    torch._dynamo.maybe_mark_dynamic(x, 0)
    return torch.nn.Linear(8, 2).eval(), x

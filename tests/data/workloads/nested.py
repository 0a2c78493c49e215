"""Form 1 with PARAMS: keyword inputs with nested tensors, a dataclass out."""

from dataclasses import dataclass

import torch

PARAMS = {"rows": 4, "columns": 6}


@dataclass
class Output:
    logits: torch.Tensor
    hidden: tuple


class Nested(torch.nn.Module):
    def forward(self, x, batch):
        total = x + batch["parts"][0] * batch["mask"]
        return Output(logits=total, hidden=(total.sum(0), batch["parts"][1]))


def get_model_and_input(rows):
    x = torch.randn(rows, PARAMS["columns"])
    return Nested(), {"x": x, "batch": {"parts": [torch.randn_like(x), torch.ones(2, dtype=torch.int64)], "mask": x > 0}}

"""A model that waits: it reads a maximum on the host in the middle of its call, and scales by a table that it keeps there."""

import torch
import torch.nn.functional as F
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# b: rows, d: width, layers: linear layers before the maximum, and as many after it
PARAMS = {"b": 64, "d": 512, "layers": 6} if DEVICE == "cuda" else {"b": 64, "d": 256, "layers": 4}


class Waits(nn.Module):
    """x: (b, d) -> (b, d)."""

    def __init__(self, d: int, layers: int) -> None:
        super().__init__()
        self.before = nn.ModuleList(nn.Linear(d, d) for _ in range(layers))
        self.after = nn.ModuleList(nn.Linear(d, d) for _ in range(layers))
        self.table = torch.rand(d, device="cpu") + 0.5

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.before:
            x = F.gelu(layer(x))
        x = x / x.abs().max().item()
        x = x * self.table.to(x.device)
        for layer in self.after:
            x = F.gelu(layer(x))
        return x


def get_model_and_input(b=PARAMS["b"], d=PARAMS["d"], layers=PARAMS["layers"], device=DEVICE):
    with torch.device(device):
        return Waits(d, layers).eval(), torch.randn(b, d)

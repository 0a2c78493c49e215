"""Independent towers of small products, whose outputs are put together at the end."""

import torch
import torch.nn.functional as F
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# b: rows, d: width, towers: branches, layers: linear layers of each
PARAMS = {"b": 32, "d": 512, "towers": 4, "layers": 6} if DEVICE == "cuda" else {"b": 32, "d": 128, "towers": 4, "layers": 4}


class Towers(nn.Module):
    """x: (b, d) -> (b, towers * d)."""

    def __init__(self, d: int, towers: int, layers: int) -> None:
        super().__init__()
        self.towers = nn.ModuleList(nn.ModuleList(nn.Linear(d, d) for _ in range(layers)) for _ in range(towers))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        outputs = []
        for tower in self.towers:
            out = x
            for layer in tower:
                out = F.relu(layer(out))
            outputs.append(out)
        return torch.cat(outputs, 1)


def get_model_and_input(b=PARAMS["b"], d=PARAMS["d"], towers=PARAMS["towers"], layers=PARAMS["layers"], device=DEVICE):
    with torch.device(device):
        return Towers(d, towers, layers).eval(), torch.randn(b, d)

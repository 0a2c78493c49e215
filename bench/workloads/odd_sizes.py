"""Linear layers whose sizes are no multiple of anything."""

import torch
import torch.nn.functional as F
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# b: rows, d: input and output width, f: hidden width
PARAMS = {"b": 1021, "d": 1021, "f": 4093} if DEVICE == "cuda" else {"b": 61, "d": 251, "f": 509}


class OddSizes(nn.Module):
    """x: (b, d) -> (b, d)."""

    def __init__(self, d: int, f: int) -> None:
        super().__init__()
        self.up = nn.Linear(d, f)
        self.down = nn.Linear(f, d)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.gelu(self.up(x)))


def get_model_and_input(b=PARAMS["b"], d=PARAMS["d"], f=PARAMS["f"], device=DEVICE):
    with torch.device(device):
        return OddSizes(d, f).eval(), torch.randn(b, d)

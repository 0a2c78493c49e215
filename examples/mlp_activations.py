"""Deep MLP with four activation functions, 512-2048-2048-2048-512.

The GPU gets 256 rows at full width; without one the layers are narrower, so that a call stays short on two cores.
"""

import torch
import torch.nn.functional as F
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# b: rows, d: input and output width, f: hidden width
PARAMS = {"b": 256, "d": 512, "f": 2048} if DEVICE == "cuda" else {"b": 64, "d": 256, "f": 1024}


class MLPActivations(nn.Module):
    """x: (b, d) -> (b, d)."""

    def __init__(self, d: int, f: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(d, f)
        self.fc2 = nn.Linear(f, f)
        self.fc3 = nn.Linear(f, f)
        self.fc4 = nn.Linear(f, d)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.fc1(x))
        x = F.gelu(self.fc2(x))
        x = F.silu(self.fc3(x))
        return torch.tanh(self.fc4(x))


def get_model_and_input(b=PARAMS["b"], d=PARAMS["d"], f=PARAMS["f"], device=DEVICE):
    with torch.device(device):
        return MLPActivations(d, f).eval(), torch.randn(b, d)

"""1x1 convolutions in a bottleneck, under the workload's own autocast."""

import torch
import torch.nn.functional as F
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# b: images, c: channels, size: pixels a side, blocks: bottlenecks
PARAMS = {"b": 32, "c": 256, "size": 28, "blocks": 4} if DEVICE == "cuda" else {"b": 2, "c": 64, "size": 14, "blocks": 2}


class Bottleneck(nn.Module):
    """x: (b, c, size, size) -> the same, by a quarter of the channels."""

    def __init__(self, c: int) -> None:
        super().__init__()
        self.down = nn.Conv2d(c, c // 4, 1)
        self.up = nn.Conv2d(c // 4, c, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.up(F.relu(self.down(x)))


class Pointwise(nn.Module):
    """x: (b, c, size, size) -> (b, c)."""

    def __init__(self, c: int, blocks: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Bottleneck(c) for _ in range(blocks))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast(x.device.type, dtype=torch.bfloat16):
            for block in self.blocks:
                x = block(x)
            return x.float().mean((2, 3))


def get_model_and_input(b=PARAMS["b"], c=PARAMS["c"], size=PARAMS["size"], blocks=PARAMS["blocks"], device=DEVICE):
    with torch.device(device):
        return Pointwise(c, blocks).eval(), torch.randn(b, c, size, size)

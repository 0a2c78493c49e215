"""Three depthwise-separable blocks: depthwise 3x3, BatchNorm, ReLU, pointwise 1x1, BatchNorm, ReLU.

Channels double from block to block (32 -> 256 on the GPU) at constant resolution. The depthwise half is bound by
memory, the pointwise half by arithmetic.
"""

from itertools import pairwise

import torch
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# b: images, c_in -> c_out: channels
PARAMS = {"b": 16, "c_in": 32, "c_out": 256, "size": 56} if DEVICE == "cuda" else {"b": 4, "c_in": 16, "c_out": 128, "size": 28}


def block(c_in: int, c_out: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(c_in, c_in, 3, padding=1, groups=c_in, bias=False), nn.BatchNorm2d(c_in), nn.ReLU(),
        nn.Conv2d(c_in, c_out, 1, bias=False), nn.BatchNorm2d(c_out), nn.ReLU(),
    )


class DepthwiseSeparableConv(nn.Module):
    """x: (b, c_in, size, size) -> (b, c_out, size, size). c_out is c_in times a power of two."""

    def __init__(self, c_in: int, c_out: int) -> None:
        super().__init__()
        widths = [c_in]
        while widths[-1] < c_out:
            widths.append(2 * widths[-1])
        if widths[-1] != c_out:
            raise ValueError(f"c_out={c_out} is not c_in={c_in} times a power of two")
        self.blocks = nn.Sequential(*(block(a, b) for a, b in pairwise(widths)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.blocks(x)


def settle_statistics(model: nn.Module) -> None:
    """Running statistics as after training, not the initial 0 and 1: folding BatchNorm away must then really do something."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.running_mean, std=0.1)
            nn.init.uniform_(module.running_var, 0.5, 1.5)


def get_model_and_input(b=PARAMS["b"], c_in=PARAMS["c_in"], c_out=PARAMS["c_out"], size=PARAMS["size"], device=DEVICE):
    with torch.device(device):
        model = DepthwiseSeparableConv(c_in, c_out)
        settle_statistics(model)
        return model.eval(), torch.randn(b, c_in, size, size)

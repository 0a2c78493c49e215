"""VGG-style stack: three times Conv2d 3x3 + BatchNorm + ReLU at full resolution, then pooling and a linear head.

Images are b x 3 x size x size; channels double from one convolution to the next (64, 128, 256 on the GPU).
"""

import torch
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# b: images, c: channels after the first convolution
PARAMS = {"b": 16, "size": 64, "c": 64} if DEVICE == "cuda" else {"b": 4, "size": 32, "c": 32}
CLASSES = 10


class ConvBnRelu(nn.Sequential):
    def __init__(self, c_in: int, c_out: int) -> None:
        super().__init__(nn.Conv2d(c_in, c_out, 3, padding=1), nn.BatchNorm2d(c_out), nn.ReLU())


class ConvBlock(nn.Module):
    """x: (b, 3, size, size) -> (b, CLASSES)."""

    def __init__(self, c: int) -> None:
        super().__init__()
        self.features = nn.Sequential(ConvBnRelu(3, c), ConvBnRelu(c, 2 * c), ConvBnRelu(2 * c, 4 * c))
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(4 * c, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.pool(self.features(x)).flatten(1))


def settle_statistics(model: nn.Module) -> None:
    """Running statistics as after training, not the initial 0 and 1: folding BatchNorm away must then really do something."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.running_mean, std=0.1)
            nn.init.uniform_(module.running_var, 0.5, 1.5)


def get_model_and_input(b=PARAMS["b"], size=PARAMS["size"], c=PARAMS["c"], device=DEVICE):
    with torch.device(device):
        model = ConvBlock(c)
        settle_statistics(model)
        return model.eval(), torch.randn(b, 3, size, size)

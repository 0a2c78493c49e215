"""Weights that stay on the host and are copied when they are needed: a model larger than the GPU's memory, in small."""

import torch
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# b: rows, d: width, layers: weights of d x d on the host
PARAMS = {"b": 2048, "d": 2048, "layers": 6} if DEVICE == "cuda" else {"b": 64, "d": 256, "layers": 6}


class StreamedWeights(nn.Module):
    """x: (b, d) -> (b, d)."""

    def __init__(self, d: int, layers: int) -> None:
        super().__init__()
        self.layers = layers
        for index in range(layers):
            setattr(self, f"weight_{index}", torch.randn(d, d, device="cpu") / d**0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for index in range(self.layers):
            x = torch.tanh(x @ getattr(self, f"weight_{index}").to(x.device))
        return x


def get_model_and_input(b=PARAMS["b"], d=PARAMS["d"], layers=PARAMS["layers"], device=DEVICE):
    with torch.device(device):
        return StreamedWeights(d, layers).eval(), torch.randn(b, d)

"""Two independent chains of products on two streams, joined by events: work that overlaps."""

import torch
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class TwoStreams(nn.Module):
    def __init__(self, d: int) -> None:
        super().__init__()
        self.left = nn.Parameter(torch.randn(d, d) / d**0.5)
        self.right = nn.Parameter(torch.randn(d, d) / d**0.5)
        self.side = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        main = torch.cuda.current_stream()
        if self.side is None:
            self.side = torch.cuda.Stream()
        self.side.wait_stream(main)
        with torch.cuda.stream(self.side):
            right = x
            for _ in range(4):
                right = right @ self.right
        left = x
        for _ in range(4):
            left = left @ self.left
        main.wait_stream(self.side)
        return left + right


def get_model_and_input(b=256, d=1024, device=DEVICE):
    with torch.device(device):
        return TwoStreams(d), torch.randn(b, d)

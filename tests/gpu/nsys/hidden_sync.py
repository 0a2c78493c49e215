"""A loop that asks the device for a number in every round, and allocates anew: synchronisation and allocator gaps."""

import torch
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Loop(nn.Module):
    def __init__(self, d: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(d, d) / d**0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(6):
            x = x @ self.weight
            if x.abs().max().item() > 1e30:
                x = x / 2
        host = x.cpu()
        x = host.to(x.device)
        torch.cuda.empty_cache()
        scratch = torch.empty(64 << 20, device=x.device)
        return x + scratch[:1].zero_()


def get_model_and_input(b=512, d=1024, device=DEVICE):
    with torch.device(device):
        return Loop(d).eval().requires_grad_(False), torch.randn(b, d)

"""Self-attention with a residual: separate Q, K, V projections, F.scaled_dot_product_attention, output projection."""

import torch
import torch.nn.functional as F
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# b: sequences, t: tokens in each, d: width, h: heads
PARAMS = {"b": 8, "t": 512, "d": 512, "h": 8} if DEVICE == "cuda" else {"b": 2, "t": 128, "d": 256, "h": 4}


class SDPAAttention(nn.Module):
    """x: (b, t, d) -> (b, t, d)."""

    def __init__(self, d: int, h: int) -> None:
        super().__init__()
        self.h = h
        self.norm_in = nn.LayerNorm(d)
        self.q = nn.Linear(d, d, bias=False)
        self.k = nn.Linear(d, d, bias=False)
        self.v = nn.Linear(d, d, bias=False)
        self.out = nn.Linear(d, d, bias=False)
        self.norm_out = nn.LayerNorm(d)

    def split_heads(self, x: torch.Tensor) -> torch.Tensor:
        b, t, d = x.shape
        return x.view(b, t, self.h, d // self.h).transpose(1, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm_in(x)
        q, k, v = (self.split_heads(projection(y)) for projection in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v)
        return self.norm_out(x + self.out(y.transpose(1, 2).flatten(2)))


def get_model_and_input(b=PARAMS["b"], t=PARAMS["t"], d=PARAMS["d"], h=PARAMS["h"], device=DEVICE):
    with torch.device(device):
        return SDPAAttention(d, h).eval(), torch.randn(b, t, d)

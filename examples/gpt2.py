"""GPT-2 small in plain PyTorch with random weights: token ids in, logits out.

The GPU gets the published size (12 layers, width 768, 12 heads, vocabulary 50257; Radford et al. 2019); without one
a two-layer model of the same shape runs.
"""

import torch
import torch.nn.functional as F
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# b: sequences, t: tokens in each, d: width
PARAMS = (
    {"b": 4, "t": 128, "layers": 12, "d": 768, "heads": 12, "vocab": 50257}
    if DEVICE == "cuda"
    else {"b": 2, "t": 64, "layers": 2, "d": 256, "heads": 4, "vocab": 8192}
)


class Attention(nn.Module):
    def __init__(self, d: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(d, 3 * d)
        self.out = nn.Linear(d, d)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(b, t, d))


class MLP(nn.Module):
    def __init__(self, d: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(d, 4 * d)
        self.fc2 = nn.Linear(4 * d, d)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc2(F.gelu(self.fc1(x), approximate="tanh"))


class Block(nn.Module):
    def __init__(self, d: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(d), Attention(d, heads)
        self.norm2, self.mlp = nn.LayerNorm(d), MLP(d)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class GPT2(nn.Module):
    """ids: (b, t) int64 -> logits (b, t, vocab). The output head shares the token embedding's weight."""

    def __init__(self, vocab: int, t: int, d: int, heads: int, layers: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab, d)
        self.positions = nn.Embedding(max(t, 1024), d)
        self.blocks = nn.ModuleList(Block(d, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(d)
        self.head = nn.Linear(d, vocab, bias=False)
        nn.init.normal_(self.tokens.weight, std=0.02)
        nn.init.normal_(self.positions.weight, std=0.02)
        self.head.weight = self.tokens.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def get_model_and_input(
    b=PARAMS["b"], t=PARAMS["t"], layers=PARAMS["layers"], d=PARAMS["d"], heads=PARAMS["heads"], vocab=PARAMS["vocab"], device=DEVICE
):
    with torch.device(device):
        return GPT2(vocab, t, d, heads, layers).eval(), torch.randint(0, vocab, (b, t))

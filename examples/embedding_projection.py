"""Embedding lookup, LayerNorm, feed-forward block, projection to the vocabulary.

On the GPU the projection is an 8192 x 32000 x 512 matrix product and takes most of the time. The four parts are marked
as stages (`record_function("stage:NAME")`), so reports show them by name instead of one row an operator.
"""

import torch
import torch.nn.functional as F
from torch import nn
from torch.profiler import record_function

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# b: sequences, t: tokens in each, v: vocabulary, d: width
PARAMS = {"b": 64, "t": 128, "v": 32000, "d": 512} if DEVICE == "cuda" else {"b": 4, "t": 32, "v": 4000, "d": 256}


class EmbeddingProjection(nn.Module):
    """ids: (b, t) int64 -> logits (b, t, v)."""

    def __init__(self, v: int, d: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(v, d)
        self.norm = nn.LayerNorm(d)
        self.fc1 = nn.Linear(d, 4 * d)
        self.fc2 = nn.Linear(4 * d, d)
        self.projection = nn.Linear(d, v)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        with record_function("stage:embed"):
            x = self.embedding(ids)
        with record_function("stage:norm"):
            x = self.norm(x)
        with record_function("stage:ffn"):
            x = x + self.fc2(F.gelu(self.fc1(x)))
        with record_function("stage:project"):
            return self.projection(x)


def get_model_and_input(b=PARAMS["b"], t=PARAMS["t"], v=PARAMS["v"], d=PARAMS["d"], device=DEVICE):
    with torch.device(device):
        return EmbeddingProjection(v, d).eval(), torch.randint(0, v, (b, t))

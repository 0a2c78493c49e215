"""A candidate for kernelbench_layernorm.py: ModelNew with the same parameters and another way to the same result.

torch's LayerNorm kernel gives each sample to one thread block, and there are only 16 samples. torch.var_mean splits
one reduction over many blocks, so the whole GPU takes part.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    """x: (batch, *normalized_shape) -> the same shape."""

    def __init__(self, normalized_shape: tuple) -> None:
        super().__init__()
        self.ln = nn.LayerNorm(normalized_shape=normalized_shape)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        dims = tuple(range(-len(self.ln.normalized_shape), 0))
        variance, mean = torch.var_mean(x, dim=dims, correction=0, keepdim=True)
        normalized = (x - mean) * torch.rsqrt(variance + self.ln.eps)
        return torch.addcmul(self.ln.bias, normalized, self.ln.weight)

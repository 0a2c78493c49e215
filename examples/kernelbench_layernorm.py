"""LayerNorm over whole feature maps, in KernelBench's form: Model, get_inputs(), get_init_inputs()."""

import torch
from torch import nn

batch_size, features, dim1, dim2 = (16, 64, 256, 256) if torch.cuda.is_available() else (16, 16, 64, 64)


class Model(nn.Module):
    """x: (batch_size, *normalized_shape) -> the same shape."""

    def __init__(self, normalized_shape: tuple) -> None:
        super().__init__()
        self.ln = nn.LayerNorm(normalized_shape=normalized_shape)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.ln(x)


def get_inputs():
    return [torch.rand(batch_size, features, dim1, dim2)]


def get_init_inputs():
    return [(features, dim1, dim2)]

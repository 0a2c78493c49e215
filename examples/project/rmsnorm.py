"""Residual add and RMS norm: out = (x + residual) / sqrt(mean((x + residual)^2) + EPSILON) * weight.

The inputs, the right answer and the least work; the versions are in rmsnorm_v1.py to rmsnorm_v5.py, each with `rmsnorm`.
"""

import torch

PARAMS = {"rows": 16384, "cols": 4096, "dtype": "bfloat16"}
EPSILON = 1e-6


def get_inputs(rows, cols, dtype):
    device = "cuda" if torch.cuda.is_available() else "cpu"
    kind = getattr(torch, dtype)
    x, residual = (torch.randn(rows, cols, device=device, dtype=kind) for _ in range(2))
    return x, residual, torch.rand(cols, device=device, dtype=kind)


def reference(x, residual, weight):
    total = x.float() + residual.float()
    return (total * torch.rsqrt(total.square().mean(dim=1, keepdim=True) + EPSILON) * weight.float()).to(x.dtype)


def flops(rows, cols, dtype):
    """An add, a square, a sum and two products an element."""
    return 5 * rows * cols


def bytes_moved(rows, cols, dtype):
    """x, residual and the output once, and the weight."""
    return (3 * rows + 1) * cols * getattr(torch, dtype).itemsize

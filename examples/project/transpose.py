"""A matrix transposed into memory of its own: the inputs, the right answer and the least work of transpose_v1.py and transpose_v2.py."""

import torch

PARAMS = {"n": 8192}


def get_inputs(n):
    return (torch.randn(n, n, device="cuda" if torch.cuda.is_available() else "cpu"),)


def reference(x):
    return x.t().contiguous()


def flops(n):
    return 0


def bytes_moved(n):
    """Each element read once and written once."""
    return 2 * 4 * n * n

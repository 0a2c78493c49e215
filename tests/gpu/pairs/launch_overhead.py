"""Hundreds of kernels on a tensor so small that the device waits for each launch."""

import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
PARAMS = {"n": 2048 if DEVICE == "cuda" else 128, "calls": 100}


def many_small(x, calls):
    for _ in range(calls):
        x = x * 1.01 + 0.5  # <- here
    return x


def shows(x, w):
    return many_small(x[0, :64], PARAMS["calls"])


def clean(x, w):
    for _ in range(4):
        x = torch.relu(x @ w)
    return x


VERSIONS = {"shows": shows, "clean": clean}


def get_inputs(n):
    return torch.randn(n, n, device=DEVICE), torch.randn(n, n, device=DEVICE) / n**0.5

"""Four ways to make the host wait for the device inside a step, and the same step without them."""

import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
PARAMS = {"n": 2048 if DEVICE == "cuda" else 128}


def read_scalar(x):
    return x.mean().item()  # <- item


def read_tensor(x):
    return x[0].cpu()  # <- cpu


def pick_by_mask(x):
    return x[x > 0].sum()  # <- mask


def wait_for_all():
    if DEVICE == "cuda":
        torch.cuda.synchronize()  # <- synchronize


def shows(x, w):
    total = read_scalar(x @ w)
    row = read_tensor(x @ w)
    positive = pick_by_mask(x @ w)
    y = x @ w
    wait_for_all()
    return y + total, row, positive


def clean(x, w):
    y = x @ w
    return x @ w + y.mean(), (x @ w)[0], torch.relu(x @ w).sum()


VERSIONS = {"shows": shows, "clean": clean}


def get_inputs(n):
    return torch.randn(n, n, device=DEVICE), torch.randn(n, n, device=DEVICE) / n**0.5

"""A batch that is copied to the device in every step: from pageable memory, from pinned memory, and not at all."""

import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
PARAMS = {"n": 4096 if DEVICE == "cuda" else 256}
PAGEABLE = torch.randn(PARAMS["n"], PARAMS["n"])
PINNED = PAGEABLE.pin_memory() if DEVICE == "cuda" else PAGEABLE.clone()


def upload_pageable():
    return PAGEABLE.to(DEVICE, copy=True)  # <- pageable


def upload_pinned():
    return PINNED.to(DEVICE, non_blocking=True, copy=True)  # <- pinned


def shows(x, w):
    return torch.relu(upload_pageable() @ w)


def pinned(x, w):
    return torch.relu(upload_pinned() @ w)


def clean(x, w):
    return torch.relu(x @ w)


VERSIONS = {"shows": shows, "pinned": pinned, "clean": clean}


def get_inputs(n):
    return PAGEABLE.to(DEVICE), torch.randn(n, 512, device=DEVICE)

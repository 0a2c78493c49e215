"""Rows in batches of eight: eight thread blocks on a device that runs hundreds at once."""

import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
PARAMS = {"rows": 512, "columns": 65536} if DEVICE == "cuda" else {"rows": 64, "columns": 256}


def small_batch(rows):
    return torch.softmax(rows, dim=-1)  # <- here


def shows(x):
    for rows in x.split(8):
        y = small_batch(rows)
    return y


def clean(x):
    return torch.softmax(x, dim=-1)


VERSIONS = {"shows": shows, "clean": clean}


def get_inputs(rows, columns):
    return torch.randn(rows, columns, device=DEVICE)

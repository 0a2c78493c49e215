"""A data set that takes 5 ms for a batch while the device has work for a fraction of that."""

import time

import torch
from torch.utils.data import DataLoader, IterableDataset

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
PARAMS = {"n": 2048 if DEVICE == "cuda" else 128}


class Batches(IterableDataset):
    """The same ready-made batch for ever, after some milliseconds of preparation."""

    def __init__(self, seconds):
        self.batch, self.seconds = torch.zeros(64), seconds

    def __iter__(self):
        while True:
            time.sleep(self.seconds)
            yield self.batch


SLOW, QUICK = (iter(DataLoader(Batches(seconds), batch_size=None)) for seconds in (5e-3, 0.0))


def load_slowly():
    return next(SLOW)  # <- here


def shows(x, w):
    return torch.relu(x @ w) + load_slowly().sum()


def clean(x, w):
    return torch.relu(x @ w @ w @ w) + next(QUICK).sum()


VERSIONS = {"shows": shows, "clean": clean}


def get_inputs(n):
    return torch.randn(n, n, device=DEVICE), torch.randn(n, n, device=DEVICE) / n**0.5

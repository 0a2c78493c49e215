"""A training step whose data loader is slower than the device: each batch takes 10 ms of host time."""

import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BATCH, WIDTH, CLASSES, ITEM_S = 64, 512, 100, 10e-3 / 64


class Slow(Dataset):
    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int):
        ends = time.perf_counter() + ITEM_S
        while time.perf_counter() < ends:
            pass
        return torch.full((WIDTH,), float(index % 7)), index % CLASSES


class Step:
    """One training step on the next batch."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.model = nn.Sequential(nn.Linear(WIDTH, 2048), nn.ReLU(), nn.Linear(2048, CLASSES)).to(device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)
        self.batches = iter(DataLoader(Slow(), batch_size=BATCH))

    def __call__(self, scale: torch.Tensor) -> torch.Tensor:
        x, labels = next(self.batches)
        x, labels = x.to(self.device) * scale, labels.to(self.device)
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.model(x), labels)
        loss.backward()
        self.optimizer.step()
        return loss.detach()


def get_model_and_input(device=DEVICE):
    return Step(device), torch.ones(1, device=device)

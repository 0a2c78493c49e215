"""A model that makes its own batches: it iterates over a DataLoader without workers in its call."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# items: of the data set, d: width, f: hidden width, batch: items a batch
PARAMS = {"items": 256, "d": 1024, "f": 4096, "batch": 64} if DEVICE == "cuda" else {"items": 128, "d": 256, "f": 1024, "batch": 32}


class Decoded(Dataset):
    """Item i: (d,) float32, the same each time; sorting stands for decoding it."""

    def __init__(self, items: int, d: int) -> None:
        self.raw = torch.randn(items, 16 * d, generator=torch.Generator("cpu").manual_seed(0), device="cpu")
        self.d = d

    def __len__(self) -> int:
        return len(self.raw)

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.raw[index].sort().values[:: 16][: self.d]


class OwnLoader(nn.Module):
    """scale: (1,) -> (items, d), the scores of every item."""

    def __init__(self, items: int, d: int, f: int, batch: int) -> None:
        super().__init__()
        self.loader = DataLoader(Decoded(items, d), batch_size=batch)
        self.layers = nn.Sequential(nn.Linear(d, f), nn.GELU(), nn.Linear(f, f), nn.GELU(), nn.Linear(f, d))

    def forward(self, scale: torch.Tensor) -> torch.Tensor:
        return torch.cat([self.layers(batch.to(scale.device) * scale) for batch in self.loader])


def get_model_and_input(items=PARAMS["items"], d=PARAMS["d"], f=PARAMS["f"], batch=PARAMS["batch"], device=DEVICE):
    with torch.device(device):
        return OwnLoader(items, d, f, batch).eval(), torch.rand(1)

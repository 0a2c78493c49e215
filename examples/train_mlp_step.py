"""A training step as a workload: the model is in train mode and returns its loss, so one call is forward and backward."""

import torch
import torch.nn.functional as F
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# b: rows, d: input width, f: hidden width, classes: labels
PARAMS = {"b": 512, "d": 1024, "f": 4096, "classes": 1000} if DEVICE == "cuda" else {"b": 64, "d": 128, "f": 512, "classes": 100}


class Classifier(nn.Module):
    """x: (b, d), labels: (b,) int64 -> scalar cross-entropy."""

    def __init__(self, d: int, f: int, classes: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(d, f), nn.GELU(), nn.Linear(f, f), nn.GELU(), nn.Linear(f, classes))

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(self.layers(x), labels)


def get_model_and_input(b=PARAMS["b"], d=PARAMS["d"], f=PARAMS["f"], classes=PARAMS["classes"], device=DEVICE):
    with torch.device(device):
        batch = {"x": torch.randn(b, d), "labels": torch.randint(0, classes, (b,))}
        return Classifier(d, f, classes).train(), batch

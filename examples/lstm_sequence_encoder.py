"""Two stacked LSTM layers over a sequence, mean over time, linear classifier."""

import torch
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# b: sequences, t: steps in each, d: input width, h: hidden width
PARAMS = {"b": 32, "t": 128, "d": 256, "h": 512, "layers": 2} if DEVICE == "cuda" else {"b": 8, "t": 32, "d": 64, "h": 128, "layers": 2}
CLASSES = 10


class LSTMSequenceEncoder(nn.Module):
    """x: (b, t, d) -> (b, CLASSES)."""

    def __init__(self, d: int, h: int, layers: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(d, h, num_layers=layers, batch_first=True)
        self.classifier = nn.Linear(h, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        states, _ = self.lstm(x)
        return self.classifier(states.mean(dim=1))


def get_model_and_input(b=PARAMS["b"], t=PARAMS["t"], d=PARAMS["d"], h=PARAMS["h"], layers=PARAMS["layers"], device=DEVICE):
    with torch.device(device):
        return LSTMSequenceEncoder(d, h, layers).eval(), torch.randn(b, t, d)

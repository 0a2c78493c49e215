"""An encoder whose batches are as long as their longest text: another length in each call."""

import torch
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# b: texts, d: width, heads: of attention, layers: of the encoder, tokens: shortest and longest, words: in the vocabulary
PARAMS = {"b": 16, "d": 768, "heads": 12, "layers": 4, "tokens": (256, 512), "words": 16384} if DEVICE == "cuda" else \
    {"b": 2, "d": 64, "heads": 2, "layers": 2, "tokens": (16, 32), "words": 256}


class Lengths(nn.Module):
    """tokens: (b, n) -> (b, d)."""

    def __init__(self, d: int, heads: int, layers: int, words: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, d)
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(d, heads, 4 * d, batch_first=True, norm_first=True) for _ in range(layers))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return x.mean(1)


def get_model_and_input(b=PARAMS["b"], d=PARAMS["d"], heads=PARAMS["heads"], layers=PARAMS["layers"], tokens=PARAMS["tokens"],
                        words=PARAMS["words"], device=DEVICE):
    with torch.device(device):
        model = Lengths(d, heads, layers, words).eval()
        return model, torch.randint(words, (b, int(torch.randint(tokens[0], tokens[1] + 1, (1,)))))

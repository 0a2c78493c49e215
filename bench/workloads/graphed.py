"""A network in bfloat16 whose owner made CUDA graphs of it with torch.cuda.make_graphed_callables."""

import torch
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# b: rows, d: width, layers: of linear, GELU and norm
PARAMS = {"b": 64, "d": 1024, "layers": 8} if DEVICE == "cuda" else {"b": 16, "d": 128, "layers": 4}


def get_model_and_input(b=PARAMS["b"], d=PARAMS["d"], layers=PARAMS["layers"], device=DEVICE):
    """x: (b, d) -> (b, d). Without a GPU there is nothing to capture."""
    with torch.device(device):
        parts = [part for _ in range(layers) for part in (nn.Linear(d, d), nn.GELU(), nn.LayerNorm(d))]
        model, x = nn.Sequential(*parts).bfloat16().eval().requires_grad_(False), torch.randn(b, d, dtype=torch.bfloat16)
    if torch.device(device).type == "cuda":
        model = torch.cuda.make_graphed_callables(model, (torch.randn_like(x),))
    return model, x

"""A generation loop: frames made one after another by a decoder that keeps the keys and values of those before."""

import torch
import torch.nn.functional as F
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# b: sequences, d: width, heads: of attention, layers: of the decoder, frames: made in a call
PARAMS = {"b": 8, "d": 512, "heads": 8, "layers": 4, "frames": 24} if DEVICE == "cuda" else {"b": 2, "d": 64, "heads": 2, "layers": 2,
                                                                                           "frames": 6}


class Layer(nn.Module):
    """x: (b, 1, d), cache: keys and values of the steps before, (b, heads, steps, d / heads) each."""

    def __init__(self, d: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.after = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x, cache):
        b, steps, d = x.shape
        q, k, v = (part.view(b, steps, self.heads, d // self.heads).transpose(1, 2) for part in self.qkv(self.before(x)).chunk(3, -1))
        if cache is not None:
            k, v = torch.cat((cache[0], k), 2), torch.cat((cache[1], v), 2)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, steps, d))
        return x + self.down(F.gelu(self.up(self.after(x)))), (k, v)


class Step(nn.Module):
    """One frame: (b, 1, d) -> the next."""

    def __init__(self, d: int, heads: int, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer(d, heads) for _ in range(layers))
        self.head = nn.Linear(d, d)

    def forward(self, x, caches):
        made = []
        for layer, cache in zip(self.layers, caches, strict=True):
            x, cache = layer(x, cache)
            made.append(cache)
        return torch.tanh(self.head(x)), made


class Decode(nn.Module):
    """x: (b, 1, d), the first frame -> (b, frames, d)."""

    def __init__(self, d: int, heads: int, layers: int, frames: int) -> None:
        super().__init__()
        self.step, self.frames = Step(d, heads, layers), frames

    def forward(self, x):
        caches, frames = [None] * len(self.step.layers), []
        for _ in range(self.frames):
            x, caches = self.step(x, caches)
            frames.append(x)
        return torch.cat(frames, 1)


def get_model_and_input(b=PARAMS["b"], d=PARAMS["d"], heads=PARAMS["heads"], layers=PARAMS["layers"], frames=PARAMS["frames"],
                        device=DEVICE):
    with torch.device(device):
        return Decode(d, heads, layers, frames).eval(), torch.randn(b, 1, d)

"""cuTile."""

import cuda.tile as ct
import torch

TILE = 1024


@ct.kernel
def axpy_tile(out, x, y):
    block = ct.bid(0)
    left = ct.load(x, index=(block,), shape=(TILE,))
    right = ct.load(y, index=(block,), shape=(TILE,))
    ct.store(out, index=(block,), tile=left * 2.0 + right)


def axpy(x, y):
    out = torch.empty_like(x)
    flat = tuple(tensor.detach().view(-1) for tensor in (out, x, y))
    ct.launch(torch.cuda.current_stream(x.device), (ct.cdiv(x.numel(), TILE), 1, 1), axpy_tile, flat)
    return out


def optimize(model, inputs):
    return axpy

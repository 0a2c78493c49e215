"""Passes on the ATen graph with Inductor's own code on a GPU: measured there, and no less accurate than the original."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from kernelwright.probe.rewrites.batch_products import batch_products
from kernelwright.probe.rewrites.graphs import GraphBackend
from kernelwright.probe.rewrites.remove_redundant_aten import remove_redundant_aten

pytestmark = pytest.mark.gpu


class Towers(nn.Module):
    """Eight layers of one shape on eight inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(256, 256) for _ in range(8))

    def forward(self, x):
        return torch.stack([torch.relu(layer(x[:, place])) for place, layer in enumerate(self.layers)], 1)


class Unrolled(nn.Module):
    """A recurrent cell, step by step."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(256, 256)

    def forward(self, x):
        state = x[:, 0]
        for step in range(x.shape[1]):
            state = self.cell(x[:, step], state)
        return state


class Attention(nn.Module):
    """Under autocast, which casts the input once a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(256, 256) for _ in range(3))

    def forward(self, x):
        with torch.autocast("cuda", torch.bfloat16):
            return torch.softmax(self.q(x) @ self.k(x).mT, -1).to(x.dtype) @ self.v(x).to(x.dtype)


@pytest.mark.parametrize(("model", "change"), [
    (Towers, batch_products), (Unrolled, batch_products), (Attention, remove_redundant_aten)])
@torch.no_grad()
def test_a_pass_on_the_aten_graph_finds_its_place_and_keeps_the_precision(model, change) -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)
    module, x = model().cuda().eval(), torch.randn(32, 8, 256, device="cuda")
    plain = module(x)
    backend = GraphBackend(aten=[change])
    found = backend.checked(torch.compile(module, backend=backend))(x)
    assert backend.found[change.__name__] >= 1
    exact = module.double()(x.double())
    before, after = (float((value.double() - exact).norm() / exact.norm()) for value in (plain, found))
    assert after <= 2 * before + 4 * torch.finfo(x.dtype).eps
    assert found.stride() == plain.stride()

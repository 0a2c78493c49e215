"""Layouts of linear layers' weights on a GPU: odd sizes that padding helps, and weights that lie transposed in memory."""

from __future__ import annotations

import sys

import pytest
import torch
from torch import nn

from kernelwright.probe.rewrites.casts import layer_seconds
from kernelwright.probe.rewrites.graphs import GraphBackend
from kernelwright.probe.rewrites.pad_to_tiles import pad_to_tiles
from kernelwright.probe.rewrites.transposed_weights import transposed, transposed_weights

pytestmark = pytest.mark.gpu


@torch.no_grad()
def test_odd_sizes_are_padded_where_that_is_faster() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(1021, 4093), nn.GELU(), nn.Linear(4093, 1021)).cuda().bfloat16().eval()
    x = torch.randn(1021, 1021, device="cuda", dtype=torch.bfloat16)
    backend = GraphBackend([pad_to_tiles])
    outs = backend.checked(torch.compile(model, backend=backend))(x), model(x)
    exact = model.double()(x.double())
    error, own = (float((out.double() - exact).norm() / exact.norm()) for out in outs)
    assert backend.found["pad_to_tiles"] == 2 and error <= 1.1 * own


@torch.no_grad()
def test_transposed_weights_compute_the_same_and_are_taken_where_they_are_faster(capsys) -> None:
    torch.manual_seed(0)
    for rows in (1, 8, 32, 128):
        model = nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 1024)).cuda().eval()
        x = torch.randn(rows, 1024, device="cuda")
        changed = transposed_weights(model, (x,), {}, lambda *_arguments: True)
        torch.testing.assert_close(changed(x), model(x), rtol=1e-4, atol=1e-5)
        found = []
        for layer, given in ((model[0], x), (model[2], torch.randn(rows, 4096, device="cuda"))):
            other = transposed(layer)
            times = [layer_seconds(lambda one=one, given=given: one(given), cuda=True) for one in (layer, other)]
            found.append(times[0] / times[1])
        try:
            taken = sum(layer.weight.stride(0) == 1 for layer in transposed_weights(model, (x,), {}) if isinstance(layer, nn.Linear))
        except NotImplementedError:
            taken = 0
        assert sum(ratio > 1.3 for ratio in found) <= taken <= sum(ratio > 0.97 for ratio in found)
        with capsys.disabled():
            print(f"{rows} rows: transposed {found[0]:.2f}x and {found[1]:.2f}x as fast, {taken} of 2 taken",
                  file=sys.__stderr__, flush=True)

"""LSTM layers in one persistent kernel on a GPU: exactness at odd sizes, compiled, in a graph, and what it gains."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch
from torch import nn

from kernelwright.probe.rewrites.bf16 import bf16
from kernelwright.probe.rewrites.compile_default import compile_default
from kernelwright.probe.rewrites.cuda_graph import cuda_graph
from kernelwright.probe.rewrites.measuring import errors, seconds
from kernelwright.probe.rewrites.persistent_lstm import PersistentLstm, PlainLstm, lstm_tiles, persistent_lstm

pytestmark = pytest.mark.gpu
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "lstm_sequence_encoder.py"


@pytest.mark.parametrize(("width", "size", "layers", "batch", "steps", "batch_first", "bias"), [
    (24, 64, 1, 3, 7, True, True), (40, 100, 3, 33, 50, False, True), (256, 512, 2, 32, 64, True, True), (16, 20, 4, 64, 9, True, False)])
@torch.no_grad()
def test_every_tile_errs_like_the_library(width, size, layers, batch, steps, batch_first, bias):
    torch.manual_seed(0)
    lstm = nn.LSTM(width, size, layers, bias=bias, batch_first=batch_first).cuda().eval()
    x = torch.randn(*((batch, steps) if batch_first else (steps, batch)), width, device="cuda")
    exact, library = PlainLstm(lstm)(x.double()), lstm(x)
    own = PersistentLstm(lstm)
    assert own(x)[0].equal(library[0]), "no tile chosen yet"
    device = torch.cuda.get_device_properties(0)
    for tile in lstm_tiles(lstm, batch, device.multi_processor_count, device.shared_memory_per_block_optin):
        own.lay_out(tile)
        for _ in range(3):
            out, (h, c) = own(x)
        assert errors(out, exact)[0] < 1e-3 > errors(library[0], exact)[0], tile
        torch.testing.assert_close(h, library[1][0], rtol=0, atol=5e-3)
        torch.testing.assert_close(c, library[1][1], rtol=0, atol=1e-2)
        assert out.stride() == library[0].stride()


@torch.no_grad()
def test_the_example_gains_alone_in_bfloat16_compiled_and_in_a_graph():
    spec = importlib.util.spec_from_file_location("lstm_example", EXAMPLE)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    torch.manual_seed(0)
    model, x = example.get_model_and_input(device="cuda")
    own = persistent_lstm(model, (x,), {})
    assert type(own.lstm) is PersistentLstm and own.lstm.tile
    torch._dynamo.reset()
    ways = {"alone": own, "bf16": bf16(own, (x,), {}), "compiled": compile_default(own, (x,), {}), "graph": cuda_graph(own, (x,), {}),
            "bf16 in a graph": cuda_graph(bf16(own, (x,), {}), (x,), {})}
    expected = model(x)
    for name, way in ways.items():
        error = errors(way(x), expected.double())[0]
        assert error < (2e-2 if "bf16" in name else 2e-3), (name, error)
    took = {name: 1e6 * seconds(lambda way=way: way(x), calls=3) for name, way in {"library": model, **ways}.items()}
    print({name: f"{us:.0f} us" for name, us in took.items()}, own.lstm.tile)
    assert took["graph"] < took["library"] / 2
    assert torch.compile(own, fullgraph=True)(x).shape == expected.shape

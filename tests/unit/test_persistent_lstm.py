"""LSTM layers in one kernel: which calls it takes, how its weights lie, and the kernel itself in Triton's interpreter."""

from __future__ import annotations

import copy
import importlib.util
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from kernelwright.probe.rewrites import persistent_lstm as rewrite
from kernelwright.probe.rewrites.bf16 import bf16
from kernelwright.probe.rewrites.persistent_lstm import PersistentLstm, PlainLstm, lstm_tiles, persistent_lstm
from triton_interpreter import interpreted


def as_the_kernel_says(own: PersistentLstm, x: torch.Tensor) -> torch.Tensor:
    """Its description step by step in float32: x (B, T, D) -> the last layer's states (B, T, H)."""
    size, (batch, steps) = own.library.hidden_size, x.shape[:2]
    projected, below = x @ own.library.weight_ih_l0.t(), x
    for layer in range(len(own.own)):
        h = c = torch.zeros(batch, size)
        states = []
        for t in range(steps):
            total = h @ own.own[layer, :, :size].float().t() + own.shift[layer]
            total = total.view(batch, -1, 4)[:, :size]
            if layer == 0:
                total = total + projected[:, t].view(batch, 4, size).transpose(1, 2)
            else:
                total = total + (below[:, t] @ own.below[layer, :, :size].float().t()).view(batch, -1, 4)[:, :size]
            i, f, g, o = total.unbind(-1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            states.append(h)
        below = torch.stack(states, 1)
    return below


@torch.no_grad()
@pytest.mark.parametrize(("size", "units", "layers", "bias"), [(16, 8, 2, True), (20, 8, 3, True), (16, 4, 1, False)])
def test_the_weights_lie_as_the_kernel_reads_them(size: int, units: int, layers: int, bias: bool) -> None:
    torch.manual_seed(0)
    lstm, x = nn.LSTM(6, size, layers, bias=bias, batch_first=True), torch.randn(3, 5, 6)
    own = PersistentLstm(lstm)
    own.lay_out([units, 4])
    deep, columns = 1 << (size - 1).bit_length(), -(-size // units) * units * 4
    assert own.own.shape == own.below.shape == (layers, columns, deep) and own.own.dtype == torch.float16
    assert own.shift.shape == (layers, columns)
    torch.testing.assert_close(as_the_kernel_says(own, x), lstm(x)[0], rtol=0, atol=2e-3)
    assert PlainLstm(lstm)(x.double()).sub(lstm(x)[0]).abs().max() < 1e-6


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(6, 16, 2), nn.Linear(16, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        states, (h, _c) = self.lstm(x)
        return self.head(states) + h[-1, :, : 3] * self.lstm.hidden_size + self.lstm.weight_hh_l1.mean()


@torch.no_grad()
def test_the_model_finds_in_the_layer_what_it_looks_for_and_other_calls_go_to_the_library() -> None:
    torch.manual_seed(0)
    net, x = Tagger().eval(), torch.randn(5, 2, 6)
    expected = net(x)
    own = copy.deepcopy(net)
    own.lstm = PersistentLstm(own.lstm)
    own.lstm.lay_out([8, 4])
    assert torch.equal(own(x), expected), "on the CPU the library computes"
    again = copy.deepcopy(own)
    assert again.lstm.tile == [8, 4] and torch.equal(again(x), expected) and again.lstm.weight_ih_l0 is not own.lstm.weight_ih_l0
    assert torch.equal(own.lstm(input=x)[0], net.lstm(input=x)[0]), "by nn.LSTM's own name"
    half = bf16(own, (x,), {})
    assert half.inner.lstm.own.dtype == torch.float16 and half(x).dtype == torch.float32
    torch.testing.assert_close(half(x), expected, rtol=0, atol=5e-2)
    state = torch.randn(2, 2, 16)
    assert torch.equal(own.lstm(x, (state, state))[0], net.lstm(x, (state, state))[0])
    packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([5, 3]))
    assert torch.equal(own.lstm(packed)[0].data, net.lstm(packed)[0].data)
    assert torch.equal(own.lstm(x[:, 0])[0], net.lstm(x[:, 0])[0])
    with pytest.raises(AttributeError, match="no_such_thing"):
        own.lstm.no_such_thing  # noqa: B018 asked for


@pytest.mark.parametrize(("given", "taken"), [
    ({}, True), ({"hx": (None,)}, False), ({"dtype": torch.float64}, False), ({"dims": 2}, False), ({"batch": 65}, False),
    ({"steps": 0}, False), ({"steps": 2**20}, False), ({"gradient": True}, False), ({"cast": torch.bfloat16}, False),
    ({"dropout": 0.5}, False), ({"dropout": 0.5, "eval": True}, True), ({"most": 32}, False), ({"most": 32, "batch": 32}, True),
    ({"laid_out": False}, True)])
def test_only_calls_that_the_kernel_can_compute_are_taken(given: dict, taken: bool) -> None:
    class OnGpu(torch.Tensor):
        is_cuda = True

    own = PersistentLstm(nn.LSTM(6, 16, 2, batch_first=True, dropout=given.get("dropout", 0.0)))
    own.requires_grad_(given.get("gradient", False))
    own.train(not given.get("eval", False))
    if given.get("laid_out", True):
        own.lay_out([8, 4])
    own.to(given.get("cast", torch.float32) if "cast" in given else None)
    own.most = given.get("most", own.most)
    x = torch.empty(given.get("batch", 64), given.get("steps", 7), 6, dtype=given.get("dtype", torch.float32), device="meta")
    own.to("meta")
    x = (x[0] if given.get("dims") == 2 else x).as_subclass(OnGpu)
    assert own.takes(x, given.get("hx")) is taken


@torch.no_grad()
def test_torch_compile_takes_the_model_as_one_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library's layer would break it: Dynamo refuses to touch one."""
    torch.manual_seed(0)
    net, x = Tagger().eval(), torch.randn(5, 2, 6)
    net.lstm = PersistentLstm(net.lstm)
    net.lstm.lay_out([8, 4])
    monkeypatch.setattr(PersistentLstm, "takes", lambda self, x, hx: hx is None)
    plain = nn.LSTM(6, 16, 2)
    plain.load_state_dict(net.lstm.library.state_dict())
    monkeypatch.setattr(rewrite, "lstm_steps", lambda *_arguments: (plain(x)[0].clone(), *(state.clone() for state in plain(x)[1])))
    torch._dynamo.reset()
    compiled = torch.compile(net, backend="aot_eager", fullgraph=True, dynamic=False)
    net.lstm.tile, expected = [], net(x)
    net.lstm.tile = [8, 4]
    torch.testing.assert_close(compiled(x), expected)
    torch._dynamo.reset()


def test_all_programs_must_fit_on_the_gpu_at_once() -> None:
    def tiles(size: int, layers: int, batch: int = 32) -> list[list[int]]:
        return lstm_tiles(nn.LSTM(256, size, layers, device="meta"), batch, 132, 232448)

    assert tiles(512, 2) == [[8, 4], [16, 8]] and tiles(100, 1) == [[4, 4], [8, 8]]
    assert tiles(2048, 4) == [], "more programs than the GPU has room for"
    assert tiles(1024, 1, 16) == [[8, 4], [16, 8]] and tiles(1024, 1, 64) == [[8, 4]] and tiles(1024, 2) == [], "shared memory"


def test_without_a_gpu_it_says_so() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is one")
    with pytest.raises(NotImplementedError, match="not applicable: needs Triton and an NVIDIA GPU"):
        persistent_lstm(Tagger().eval(), (torch.randn(5, 2, 6),), {})


@torch.no_grad()
def test_what_errs_more_than_the_library_or_is_slower_is_left_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    lstm, x = nn.LSTM(6, 16, 2, batch_first=True), torch.randn(3, 5, 6)
    times = {"own": 1.0, "library": 2.0}

    def calls(rough: float) -> bool:
        own = PersistentLstm(lstm)
        monkeypatch.setattr(PersistentLstm, "takes", lambda *_arguments: True)
        monkeypatch.setattr(PersistentLstm, "forward", lambda self, x: (tried.append(self.tile) or lstm(x)[0] * (1 + rough), None))
        monkeypatch.setattr(rewrite.torch.cuda, "get_device_properties", lambda _device: SimpleNamespace(
            multi_processor_count=132, shared_memory_per_block_optin=232448))
        monkeypatch.setattr(rewrite, "seconds", lambda call: times["own"] if measured(call) else times["library"])
        found = rewrite.lstm_is_faster(lstm, own, (x,), {})
        measured_for[:] = [own.most]
        return found

    def measured(call) -> bool:  # type: ignore[no-untyped-def]
        before = len(tried)
        call()
        return len(tried) > before

    tried: list[list[int]] = []
    measured_for: list[int] = []
    assert calls(0.0) and tried[0] == [4, 4]
    assert PersistentLstm(lstm).most == 64 and measured_for == [16], "a larger block might have no room"
    assert not calls(1e-3), "the library errs by 1e-7 here"
    times["own"] = 1.99
    assert not calls(0.0), "within the timing's noise"


INTERPRETED = """
import sys
sys.path.insert(0, sys.argv[1])
import torch
from kernelwright.probe.rewrites.persistent_lstm import PersistentLstm, lstm_steps
torch.manual_seed(0)
plain = torch.Tensor.new_empty
def unwritten(self, *given, **named):
    found = plain(self, *given, **named)
    return found.fill_(float("nan")) if found.is_floating_point() else found
torch.Tensor.new_empty = unwritten
for size, layers, units, batch, steps, batch_first, bias in (
        (16, 2, 8, 3, 4, True, True), (20, 3, 8, 17, 4, False, True), (16, 1, 4, 1, 1, True, False), (5, 1, 4, 2, 3, False, True)):
    lstm = torch.nn.LSTM(6, size, layers, batch_first=batch_first, bias=bias)
    x = torch.randn(*((batch, steps) if batch_first else (steps, batch)), 6)
    own = PersistentLstm(lstm)
    own.lay_out([units, 4])
    with torch.no_grad():
        found = lstm_steps(x @ lstm.weight_ih_l0.t(), own.own, own.below, own.shift, size, batch_first, own.tile, together=False)
        out, (h, c) = lstm(x)
    assert found[0].transpose(0, 1 if batch_first else 0).is_contiguous(), "step by step"
    for one, other in zip(found, (out, h, c)):
        torch.testing.assert_close(one, other, rtol=0, atol=2e-3)
"""


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="no Triton")
def test_the_kernel_in_tritons_interpreter() -> None:
    assert interpreted(INTERPRETED) == ""

"""The runtime rewrites on a GPU: captured, overlapped and without the host's waits, with the values of the original."""

from __future__ import annotations

import time

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from kernelwright.probe.rewrites.blas_library import WORTH_PCT, blas_library
from kernelwright.probe.rewrites.cuda_graph import cuda_graph
from kernelwright.probe.rewrites.cudnn_benchmark import cudnn_benchmark
from kernelwright.probe.rewrites.graphed_training import graphed_training
from kernelwright.probe.rewrites.piecewise_graphs import piecewise_graphs
from kernelwright.probe.rewrites.pinned_copies import pinned_copies
from kernelwright.probe.rewrites.remove_syncs import remove_syncs
from kernelwright.probe.rewrites.resident_constants import resident_constants
from kernelwright.probe.rewrites.side_streams import side_streams

pytestmark = pytest.mark.gpu


def seconds(call, *args) -> float:
    for _ in range(3):
        call(*args)
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(20):
        call(*args)
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / 20


def error(ours: torch.Tensor, exact: torch.Tensor) -> float:
    return float((ours.double() - exact).norm() / exact.norm())


# Whole-call capture.


@torch.no_grad()
def test_a_graph_goes_on_with_the_random_numbers_of_the_generator() -> None:
    x = torch.ones(1 << 16, device="cuda")

    def call(v):
        return F.dropout(v, 0.5, training=True)

    torch.manual_seed(3)
    expected = [call(x) for _ in range(3)]
    torch.manual_seed(3)
    fast = cuda_graph(call, (x,), {})
    for value in expected:
        assert torch.equal(fast(x), value)


@torch.no_grad()
def test_a_graph_refuses_other_shapes_and_takes_several_inputs_and_strides() -> None:
    fast = cuda_graph(lambda x, y: x @ y + 1, (torch.randn(8, 8, device="cuda"), torch.randn(8, 8, device="cuda")), {})
    x, y = torch.randn(8, 8, device="cuda").t(), torch.randn(8, 8, device="cuda")
    assert torch.allclose(fast(x, y), x @ y + 1, atol=1e-5)
    with pytest.raises(ValueError, match="other shapes"):
        fast(x[:1], y)


@pytest.mark.parametrize("waits", [lambda x: x * x.sum().item(), lambda x: x[x > 0], lambda x: x.cpu().cuda()])
@torch.no_grad()
def test_what_cannot_be_captured_is_not_applicable_and_leaves_the_device_usable(waits) -> None:
    x = torch.randn(64, device="cuda")
    with pytest.raises(NotImplementedError, match="can't be captured"):
        cuda_graph(waits, (x,), {})
    torch.manual_seed(0)
    assert torch.randn(4, device="cuda").isfinite().all(), "random numbers too"
    assert torch.equal(cuda_graph(lambda v: v + 1, (x,), {})(x), x + 1)


@torch.no_grad()
def test_a_graph_around_a_compiled_model() -> None:
    model, x = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 64)).cuda().eval(), torch.randn(8, 64, device="cuda")
    fast = cuda_graph(torch.compile(model), (x,), {})
    other = torch.randn_like(x)
    assert torch.allclose(fast(other), model(other), atol=1e-5)


# Streams.


class Towers(nn.Module):
    """Four independent chains of small products."""

    def __init__(self) -> None:
        super().__init__()
        self.towers = nn.ModuleList(nn.Sequential(*(nn.Linear(512, 512) for _ in range(6))) for _ in range(4))

    def forward(self, x):
        return torch.cat([tower(x) for tower in self.towers], 1)


@torch.no_grad()
def test_branches_overlap_inside_a_graph_with_the_same_bits() -> None:
    torch.manual_seed(0)
    model, x = Towers().cuda().eval(), torch.randn(32, 512, device="cuda")
    plain, fast = cuda_graph(model, (x,), {}), cuda_graph(side_streams(model, (x,), {}), (x,), {})
    for _ in range(20):
        x = torch.randn_like(x)
        assert torch.equal(fast(x), model(x))
    before, after = seconds(plain, x), seconds(fast, x)
    print(f"one stream {before * 1e6:.0f} us, four {after * 1e6:.0f} us")
    assert after < before


@torch.no_grad()
def test_branches_without_a_graph_reuse_no_memory_too_early() -> None:
    torch.manual_seed(0)
    model, x = Towers().cuda().eval(), torch.randn(4096, 512, device="cuda")
    fast = side_streams(model, (x,), {})
    for _ in range(30):
        x = torch.randn_like(x)
        assert torch.equal(fast(x), model(x))


# Training steps.


class Step(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 128), nn.BatchNorm1d(128), nn.GELU(), nn.Linear(128, 10))

    def forward(self, x, labels):
        logits = self.layers(x)
        return {"loss": F.cross_entropy(logits, labels), "logits": logits}


def test_a_captured_training_step_trains_as_the_original() -> None:
    torch.manual_seed(0)
    one, two = Step().cuda().train(), Step().cuda().train()
    two.load_state_dict(one.state_dict())
    batches = [{"x": torch.randn(32, 64, device="cuda"), "labels": torch.randint(0, 10, (32,), device="cuda")} for _ in range(5)]
    fast = graphed_training(two, (), batches[0])
    kept = []
    for model, call in ((one, one), (two, fast)):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for batch in batches:
            optimizer.zero_grad()
            output = call(**batch)
            output["loss"].backward()
            kept.append([weight.grad for weight in model.parameters()])
            optimizer.step()
    for (name, a), b in zip(one.state_dict().items(), two.state_dict().values(), strict=True):
        assert torch.allclose(a, b, rtol=1e-4, atol=1e-6), name
    for plain, graphed in zip(kept[:5], kept[5:], strict=True):  # gradients of earlier steps are still theirs
        assert all(torch.allclose(a, b, rtol=1e-3, atol=1e-5) for a, b in zip(plain, graphed, strict=True))


def test_a_captured_training_step_accumulates_gradients() -> None:
    torch.manual_seed(0)
    model, x, labels = Step().cuda().train(), torch.randn(32, 64, device="cuda"), torch.randint(0, 10, (32,), device="cuda")
    fast = graphed_training(model, (x, labels), {})
    fast(x, labels)["loss"].backward()
    once = [weight.grad.clone() for weight in model.parameters()]
    fast(x, labels)["loss"].backward()
    assert all(torch.allclose(weight.grad, 2 * own, rtol=1e-4, atol=1e-6) for weight, own in zip(model.parameters(), once, strict=True))


# Waits, copies, settings.


class Waits(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(256, 256)
        self.table = torch.randn(256)

    def forward(self, x):
        y = self.linear(x)
        y = y / y.abs().max().item()
        torch.cuda.synchronize()
        mask = y > 0
        return y * self.table.to(y.device), y[mask].mean(), (y + 1).cpu().reshape(-1).to("cuda") * 2


@torch.no_grad()
def test_without_waits_and_uploads_the_call_can_be_captured() -> None:
    torch.manual_seed(0)
    model, x = Waits().cuda().eval(), torch.randn(64, 256, device="cuda")
    with pytest.raises(NotImplementedError):
        cuda_graph(model, (x,), {})
    free = resident_constants(remove_syncs(model, (x,), {}), (x,), {})
    fast = cuda_graph(free, (x,), {})
    for call in (free, fast):
        other = torch.randn_like(x)
        for ours, theirs in zip(call(other), model(other), strict=True):
            assert torch.allclose(ours, theirs, rtol=1e-5, atol=1e-6)


class Streamed(nn.Module):
    """Weights that stay on the host, copied when they are needed."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = [torch.randn(2048, 2048) for _ in range(6)]
        for index, weight in enumerate(self.weights):
            setattr(self, f"weight_{index}", weight / 45)

    def forward(self, x):
        for index in range(6):
            x = torch.tanh(x @ getattr(self, f"weight_{index}").to(x.device))
        return x


@torch.no_grad()
def test_pinned_copies_run_ahead_with_the_same_bits_and_follow_changes() -> None:
    torch.manual_seed(0)
    model, x = Streamed().cuda().eval(), torch.randn(2048, 2048, device="cuda")
    fast = pinned_copies(model, (x,), {})
    for _ in range(5):
        assert torch.equal(fast(x), model(x))
    model.weight_3.mul_(0.5)
    assert torch.equal(fast(x), model(x))
    before, after = seconds(model, x), seconds(fast, x)
    print(f"pageable {before * 1e6:.0f} us, pinned and ahead {after * 1e6:.0f} us")
    assert after < before


@torch.no_grad()
def test_pieces_between_waits_are_graphs_of_their_own() -> None:
    layers = nn.Sequential(*(nn.Linear(64, 64) for _ in range(20))).cuda().eval()

    def call(x):
        y = layers(x)
        return layers(y * (2 if y.sum().item() > 0 else 3))

    x = torch.randn(8, 64, device="cuda")
    fast = piecewise_graphs(call, (x,), {})
    first = fast(x)
    for _ in range(4):
        other = torch.randn_like(x)
        assert torch.allclose(fast(other), call(other), atol=1e-5)
    assert torch.allclose(first, call(x), atol=1e-5), "results outlive the next call"


@torch.no_grad()
def test_settings_of_libraries_hold_during_the_call_only() -> None:
    model, x = nn.Sequential(nn.Conv2d(8, 8, 3), nn.Flatten(), nn.Linear(8 * 36, 512)).cuda().eval(), torch.randn(4, 8, 8, 8, device="cuda")
    before = torch.backends.cudnn.benchmark, torch.backends.cudnn.benchmark_limit, torch.backends.cuda.preferred_blas_library()
    assert torch.allclose(cudnn_benchmark(model, (x,), {})(x), model(x), rtol=1e-3, atol=1e-4)
    try:
        fast = blas_library(model, (x,), {})
    except NotImplementedError as reason:
        assert f"{WORTH_PCT}% faster" in str(reason)
    else:
        assert torch.allclose(fast(x), model(x), rtol=1e-3, atol=1e-4)
    assert before == (torch.backends.cudnn.benchmark, torch.backends.cudnn.benchmark_limit, torch.backends.cuda.preferred_blas_library())

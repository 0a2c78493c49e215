"""The rewrites that need a GPU: captured and compiled results are right, and outlive the next call."""

from __future__ import annotations

import gc

import pytest
import torch
from torch import nn

from kernelwright.probe.rewrites.bf16 import bf16
from kernelwright.probe.rewrites.compile_default import compile_default
from kernelwright.probe.rewrites.compile_reduce_overhead import compile_reduce_overhead
from kernelwright.probe.rewrites.cuda_graph import cuda_graph
from kernelwright.probe.rewrites.edges import apart, narrowed
from kernelwright.probe.rewrites.tf32 import tf32

pytestmark = pytest.mark.gpu


def model_and_inputs():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64)).cuda().eval()
    return model, torch.randn(8, 64, device="cuda"), torch.randn(8, 64, device="cuda")


@pytest.mark.parametrize("rewrite", [cuda_graph, compile_reduce_overhead])
@torch.no_grad()
def test_results_are_right_and_outlive_the_next_call(rewrite) -> None:
    model, one, two = model_and_inputs()
    fast = rewrite(model, (one,), {})
    for _ in range(4):
        first, second = fast(one), fast(two)
    assert torch.allclose(first, model(one), atol=1e-5) and torch.allclose(second, model(two), atol=1e-5)
    assert torch.equal(one, model_and_inputs()[1])


@pytest.mark.parametrize("compiled", [False, True])
@torch.no_grad()
def test_the_copies_of_a_graph_cast(compiled) -> None:
    model, one, two = model_and_inputs()
    inside, bare = bf16(model, (one,), {}), bf16(model, (one,), {}, edges=False)
    around = cuda_graph(compile_default(bare, (), {}) if compiled else bare, (narrowed(one),), {}, result=apart)
    first, second = around(one), around(two)
    for got, given in ((first, one), (second, two)):
        assert got.dtype == torch.float32
        assert torch.equal(got, inside(given)) or (compiled and torch.allclose(got, inside(given), rtol=2**-6, atol=2**-6))
    pair = cuda_graph(lambda a, b: (a + b, a), (narrowed(one), narrowed(two)), {}, result=apart)(one, two)  # many inputs in few launches
    assert [part.dtype for part in pair] == [torch.float32] * 2 and torch.equal(pair[1], one.bfloat16().float())


@torch.no_grad()
def test_a_graph_follows_weights_that_change_in_place_and_nested_inputs() -> None:
    model, x, _ = model_and_inputs()

    def call(batch, scale):
        return {"y": [model(batch["x"]) * scale]}

    fast = cuda_graph(call, ({"x": x},), {"scale": 2.0})
    model[0].weight.mul_(0.5)
    assert torch.allclose(fast({"x": x}, scale=2.0)["y"][0], model(x) * 2, atol=1e-5)


@torch.no_grad()
def test_a_graph_of_cudnns_lstm() -> None:
    model, x = nn.LSTM(16, 16, batch_first=True).cuda(), torch.randn(4, 8, 16, device="cuda")
    output, (hidden, cell) = cuda_graph(model, (x,), {})(x)
    expected, (expected_hidden, expected_cell) = model(x)
    for ours, theirs in ((output, expected), (hidden, expected_hidden), (cell, expected_cell)):
        assert torch.allclose(ours, theirs, atol=1e-5)


@pytest.mark.parametrize("changing", [lambda x: x.add_(1), lambda x: x.data.mul_(2)])
def test_a_graph_refuses_a_call_that_changes_its_inputs(changing) -> None:
    with pytest.raises(NotImplementedError, match="in place"):
        cuda_graph(changing, (torch.ones(4, device="cuda"),), {})


def test_nan_inputs_are_no_change() -> None:
    x = torch.full((4,), float("nan"), device="cuda")
    assert cuda_graph(lambda v: v * 2, (x,), {})(torch.ones(4, device="cuda")).tolist() == [2.0] * 4


def test_tf32_rounds_products_and_only_inside_the_call() -> None:
    a, b = torch.randn(512, 512, device="cuda"), torch.randn(512, 512, device="cuda")
    exact = a.double() @ b.double()
    errors = [float((product.double() - exact).norm() / exact.norm()) for product in (tf32(torch.matmul, (a, b), {})(a, b), a @ b)]
    assert errors[1] < 1e-5
    assert (errors[0] > 1e-4) == (torch.cuda.get_device_capability() >= (8, 0)), "older GPUs have no TF32"


def test_what_the_graph_reads_outlives_the_model_that_it_was_captured_from():
    x = torch.randn(64, 512, device="cuda")
    model = nn.Linear(512, 512).cuda()
    expected = model(x).detach()
    fast = cuda_graph(model, (x,), {})
    del model
    gc.collect()
    taken = [torch.full((512, 512), float("nan"), device="cuda") for _ in range(4)]
    torch.testing.assert_close(fast(x), expected)
    assert len(taken) == 4

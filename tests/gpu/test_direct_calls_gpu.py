"""Compiled graphs called directly, on a GPU: the results of the compiled model; what it spares the host is printed."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from bench_scripts import load
from kernelwright.probe.rewrites.compiled_calls import bare
from kernelwright.probe.rewrites.direct_calls import direct_calls
from kernelwright.probe.rewrites.graphs import GraphBackend
from kernelwright.probe.rewrites.product_layers import with_products
from kernelwright.probe.rewrites.products import Product
from kernelwright.probe.rewrites.tf32 import tf32

pytestmark = pytest.mark.gpu
call_cost = load("call_cost")


def test_what_is_called_directly_gives_what_the_compiled_model_gives() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)
    with torch.device("cuda"):
        model = nn.Sequential(nn.Linear(256, 256), nn.GELU(), nn.LayerNorm(256), nn.Linear(256, 64)).eval()
        x = torch.randn(64, 256)
    backend = GraphBackend(calls=(direct_calls,))
    with torch.no_grad():
        compiled = bare(torch.compile(model))
        direct = backend.checked(bare(torch.compile(model, backend=backend)), model)
        for given in (x, torch.randn_like(x), torch.randn(256, 64, device="cuda").t()):
            torch.testing.assert_close(direct(given), compiled(given), rtol=0, atol=0)
        narrow = tf32(direct, (), {})
        torch.testing.assert_close(narrow(x), compiled(x), rtol=5e-3, atol=5e-3)
        took = call_cost.call_us({"compiled": compiled, "direct": direct}, x)
    print(f"compiled {took['compiled']:.1f} us a call on the host, called directly {took['direct']:.1f}")


def test_kernels_that_a_model_launches_are_no_part_of_it() -> None:
    """What Triton and torch's operators keep of a first call was taken for a change of the model."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    with torch.device("cuda"):
        model, x = nn.Sequential(nn.Linear(1024, 1024), nn.GELU(), nn.Linear(1024, 1024)).eval(), torch.randn(512, 1024)
    backend = GraphBackend(calls=(direct_calls,))
    with torch.no_grad():
        split = with_products(model, (x,), {}, lambda _linear, _x: Product("fp16x3", [128, 128, 64, 8, 3, 1, 1]))
        direct = backend.checked(bare(torch.compile(split, backend=backend)), split)
        for given in (x, torch.randn_like(x)):
            torch.testing.assert_close(direct(given), model(given), rtol=1e-4, atol=1e-5)


def test_the_bench_runs_on_the_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    assert call_cost.main(["--device", "cuda", "--weights", "36,148"]) == 0
    print(capsys.readouterr().out)

"""Normalisations in Triton kernels on a GPU: right in every way at several shapes and types, timed against eager and Inductor, and inside
a compiled model."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from kernelwright.probe.rewrites import fuse_norms as rewrite
from kernelwright.probe.rewrites.fuse_norms import fuse_norms, norm_in_torch, norm_ways, normed
from kernelwright.probe.rewrites.graphs import GraphBackend, median_us, random_like, tensor_of

pytestmark = pytest.mark.gpu
CUDA = torch.device("cuda")
SHAPES = {"short rows": ((300, 100), [100, 1, 1]), "rows": ((64, 768), [768, 1, 1]), "long rows": ((7, 5000), [5000, 1, 1]),
          "few long rows": ((3, 40001), [40001, 1, 1]), "groups": ((4, 32, 30, 30), [8 * 900, 900, 4]),
          "channels": ((2, 6, 150, 150), [22500, 22500, 6])}


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", SHAPES)
def test_every_way_is_no_worse_than_torchs_own_arithmetic(name: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    shape, geometry = SHAPES[name]
    x, residual = (torch.randn(shape, device=CUDA).to(dtype) for _ in range(2))
    weight, bias = (torch.randn(geometry[2] * geometry[0] // geometry[1], device=CUDA).to(dtype) for _ in range(2))
    total = x + residual
    for rms in (False, True):
        for activation in ("none", "relu", "silu", "gelu", "gelu_tanh"):
            settings = (geometry, rms, 1e-5, activation)
            exact = norm_in_torch(total.double(), None, weight.double(), bias.double(), *settings, torch.float64)[0]
            library = norm_in_torch(x, residual, weight, bias, *settings, dtype)[0]
            limit = 1.2 * float((library.double() - exact).abs().max()) + 1e-6 * float(exact.abs().max())
            for way in [*norm_ways(x.numel() // geometry[0], geometry[0]), [1024, 4, 3, -(-geometry[0] // 3072)]]:
                found, added = normed(x, residual, weight, bias, *settings, dtype, way, True)
                assert torch.equal(added, total) and found.dtype == dtype
                assert float((found.double() - exact).abs().max()) <= limit, (rms, activation, way)


@torch.no_grad()
@pytest.mark.parametrize("numbers", [768, 5000, 1 << 20])
def test_a_large_mean_costs_nothing(numbers: int) -> None:
    torch.manual_seed(0)
    x = torch.randn(4, numbers, device=CUDA) + 1e4
    exact = F.layer_norm(x.double(), (numbers,))
    theirs = float((F.layer_norm(x, (numbers,)).double() - exact).abs().max())
    for way in norm_ways(4, numbers):
        found = normed(x, None, None, None, [numbers, 1, 1], False, 1e-5, "none", x.dtype, way, False)[0]
        ours = float((found.double() - exact).abs().max())
        assert ours <= max(theirs, 1e-5), (way, ours, theirs)
    print(f"{numbers}: {ours:.1e}, torch {theirs:.1e}")


class Block(nn.Module):
    def __init__(self, norm: nn.Module, adds: bool) -> None:
        super().__init__()
        self.norm, self.adds = norm, adds

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.norm(x + y) if self.adds else self.norm(x)


CASES = {
    "LayerNorm (16, 64, 256, 256)": (lambda: nn.LayerNorm((64, 256, 256)), (16, 64, 256, 256), False, torch.float32),
    "GroupNorm of 8 (16, 64, 256, 256)": (lambda: nn.GroupNorm(8, 64), (16, 64, 256, 256), False, torch.float32),
    "InstanceNorm and ReLU (16, 64, 256, 256)": (
        lambda: nn.Sequential(nn.InstanceNorm2d(64), nn.ReLU()), (16, 64, 256, 256), False, torch.float32),
    "add, LayerNorm (8192, 768)": (lambda: nn.LayerNorm(768), (8192, 768), True, torch.float32),
    "add, LayerNorm (8192, 768) bfloat16": (lambda: nn.LayerNorm(768), (8192, 768), True, torch.bfloat16),
    "RMSNorm (4096, 4096)": (lambda: nn.RMSNorm(4096), (4096, 4096), False, torch.float32),
    "RMSNorm (4096, 4096) bfloat16": (lambda: nn.RMSNorm(4096), (4096, 4096), False, torch.bfloat16),
}


@torch.no_grad()
@pytest.mark.parametrize("name", CASES)
def test_times_against_eager_and_inductor(name: str) -> None:
    torch._dynamo.reset()
    made, shape, adds, dtype = CASES[name]
    torch.manual_seed(0)
    model = Block(made(), adds).to(CUDA, dtype).eval()
    x, y = (torch.randn(shape, device=CUDA, dtype=dtype) for _ in range(2))
    compiled, seen = torch.compile(model), []

    def choose(place: rewrite.NormPlace) -> list[int] | None:
        tensors = [None if node is None else random_like(tensor_of(node))
                   for node in (place.source, place.residual, place.weight, place.bias)]
        for way in norm_ways(place.x.numel() // place.geometry[0], place.geometry[0]):
            took = median_us(lambda way=way: normed(*tensors, *place.settings(), way, place.keep), CUDA)
            seen.append((round(took, 1), way))
        seen.append(rewrite.fastest_norm(place))
        return seen[-2][1] if seen[-1] is None else seen[-1]

    def fused(graph: torch.fx.GraphModule, given: object) -> int:
        return fuse_norms(graph, given, choose)

    backend = GraphBackend([fused])
    fast = backend.checked(torch.compile(model, backend=backend))
    exact = model.double()(x.double(), y.double()) if x.numel() < 2**25 else None
    model.to(dtype)
    mine, theirs = fast(x, y), model(x, y)
    torch.testing.assert_close(mine, theirs, **({"rtol": 1e-4, "atol": 1e-4} if dtype == torch.float32 else {"rtol": 0.02, "atol": 0.04}))
    if exact is not None:
        assert float((mine - exact).norm()) <= 1.1 * float((theirs - exact).norm()) + 1e-7 * float(exact.norm())
    took = {"fused": median_us(lambda: fast(x, y), CUDA), "eager": median_us(lambda: model(x, y), CUDA),
            "torch.compile": median_us(lambda: compiled(x, y), CUDA)}
    print(name, {way: f"{us:.0f} us" for way, us in took.items()}, "chosen:", seen[-1], "ways:", sorted(seen[:-1]))


@torch.no_grad()
def test_few_long_rows_are_taken_and_faster_than_eager() -> None:
    torch._dynamo.reset()
    model = nn.LayerNorm((64, 256, 256)).to(CUDA).eval()
    x = torch.randn(16, 64, 256, 256, device=CUDA)
    backend = GraphBackend([fuse_norms])
    fast = backend.checked(torch.compile(model, backend=backend))
    fast(x)
    assert backend.found["fuse_norms"] == 1
    assert median_us(lambda: fast(x), CUDA) < 0.5 * median_us(lambda: model(x), CUDA)


class Layers(nn.Module):
    """Two pre-norm blocks, and a convolution with group norm and SiLU in front."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.group = nn.Conv2d(3, 64, 3, padding=1), nn.GroupNorm(8, 64)
        self.norms = nn.ModuleList(nn.LayerNorm(64) for _ in range(2))
        self.up, self.down, self.last = nn.Linear(64, 256), nn.Linear(256, 64), nn.RMSNorm(64, eps=1e-6)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = F.silu(self.group(self.conv(image))).flatten(2).transpose(1, 2).contiguous()
        y = x
        for norm in self.norms:
            x = x + y
            y = self.down(F.gelu(self.up(norm(x))))
        return self.last(x + y)


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_whole_model_under_torch_compile(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)
    model, image = Layers().to(CUDA, dtype).eval(), torch.randn(2, 3, 32, 32, device=CUDA, dtype=dtype)
    monkeypatch.setattr(rewrite, "CLEARLY", 1e6)  # the fastest way is taken at each place
    backend = GraphBackend([fuse_norms])
    fast = backend.checked(torch.compile(model, backend=backend, fullgraph=True))
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):  # else the convolution rounds in one layout and not in another
        mine, theirs = fast(image), model(image)
    exact = model.double()(image.double())
    assert backend.found["fuse_norms"] == 4
    assert mine.dtype == dtype and float((mine - exact).norm()) <= 1.5 * float((theirs - exact).norm())

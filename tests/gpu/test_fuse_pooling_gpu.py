"""What goes to the smaller side of a pooling, compiled by Inductor on a GPU: values kept, and what it gains over torch.compile alone."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from kernelwright.probe.rewrites.fuse_pooling import fuse_pooling
from kernelwright.probe.rewrites.graphs import GraphBackend, median_us

pytestmark = pytest.mark.gpu


def block(c_in: int, c_out: int) -> list[nn.Module]:
    return [nn.Conv2d(c_in, c_out, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(2)]


class Windows(nn.Module):
    """Three windows of one input side by side (YOLO's SPP)."""

    def __init__(self) -> None:
        super().__init__()
        self.pools = nn.ModuleList(nn.MaxPool2d(size, 1, size // 2) for size in (5, 9, 13))

    def forward(self, x):
        return torch.cat([x, *(pool(x) for pool in self.pools)], 1)


NETWORKS = {
    "vgg": (lambda: nn.Sequential(*block(3, 64), *block(64, 128), *block(128, 256)), (32, 3, 112, 112)),
    "transition": (lambda: nn.Sequential(nn.BatchNorm2d(256), nn.ReLU(), nn.Conv2d(256, 128, 1, bias=False), nn.AvgPool2d(2)),
                   (32, 256, 56, 56)),
    "head": (lambda: nn.Sequential(nn.ReLU(), nn.Conv2d(512, 1000, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten()), (32, 512, 14, 14)),
    "windows": (Windows, (16, 256, 20, 20)),
}


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@torch.no_grad()
def test_values_stay_and_time_is_printed(name, dtype, capsys) -> None:
    torch.manual_seed(0)
    build, sizes = NETWORKS[name]
    model, x = build().cuda().eval().to(dtype), torch.randn(*sizes, device="cuda", dtype=dtype)
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        torch._dynamo.reset()
        plain = torch.compile(model)
        expected, backend = plain(x), GraphBackend([fuse_pooling])
        fast = backend.checked(torch.compile(model, backend=backend))
        found = fast(x)
        before, after = (min(median_us(lambda call=call: call(x), x.device) for _ in range(3)) for call in (plain, fast))
        exact = model.double()(x.double())
    old, new = (float((value - exact).norm() / exact.norm()) for value in (expected, found))
    assert found.shape == expected.shape and found.stride() == expected.stride()
    assert new <= 2.0 * old + 4 * torch.finfo(dtype).eps  # the judge's
    assert name != "windows" or torch.equal(found, expected)
    with capsys.disabled():
        print(f"\n{name}, {dtype}: {before:.0f} -> {after:.0f} us ({before / after:.2f}x), error {old:.2e} -> {new:.2e}, "
              f"{backend.found['fuse_pooling']} poolings")

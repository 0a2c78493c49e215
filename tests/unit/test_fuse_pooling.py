"""What commutes with a pooling goes to its smaller side: same values, fewer numbers worked on, and nothing moved that doesn't commute."""

from __future__ import annotations

import copy
import math
import runpy
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from graph_carrier import Passed
from kernelwright.model.workload import TensorSpec, WorkloadFacts, WorkloadRef
from kernelwright.optimize.generate import render_source
from kernelwright.optimize.passes import CATALOGUE
from kernelwright.probe.rewrites import fuse_pooling as rewrite
from kernelwright.probe.rewrites.fold_linear_bn import fold_linear_bn
from kernelwright.probe.rewrites.fuse_pooling import fuse_pooling


class Called(nn.Module):
    """A module whose forward is the given function of itself."""

    def __init__(self, forward, **parts) -> None:
        super().__init__()
        for name, part in parts.items():
            setattr(self, name, part)
        self.run = forward

    def forward(self, *args):
        return self.run(self, *args)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


def assert_no_worse(model: nn.Module, fast: Passed, x: torch.Tensor) -> None:
    """The error to float64 is within twice the original's own, plus a rounding."""
    with torch.no_grad():
        given, found, exact = model(x), fast(x), copy.deepcopy(model).double()(x.double())
    assert found.shape == given.shape and found.stride() == given.stride()
    limit = 2 * float((given - exact).abs().max()) + 1e-7 * float(exact.abs().max())
    assert float((found - exact).abs().max()) <= limit


def refuses(change, model, *args) -> None:
    with pytest.raises(NotImplementedError, match="found nothing to change"):
        Passed(model, change)(*args)


@pytest.fixture
def like_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """The convolution's bias is taken for a pass of its own, as on a GPU."""
    monkeypatch.setattr(rewrite, "bias_is_apart", lambda _look: True)


def image(*sizes: int) -> torch.Tensor:
    return torch.randn(*(sizes or (2, 4, 12, 12)), generator=torch.Generator().manual_seed(1))


def positive(norm: nn.BatchNorm2d) -> nn.BatchNorm2d:
    for part in (norm.running_mean, norm.bias):
        nn.init.normal_(part)
    for part in (norm.running_var, norm.weight):
        nn.init.uniform_(part, 0.1, 2.0)
    return norm.eval()


def same(first: torch.Tensor, second: torch.Tensor) -> bool:
    return torch.equal(first.nan_to_num(7.0), second.nan_to_num(7.0)) and torch.equal(first.isnan(), second.isnan())


ACTIVATIONS = [
    nn.ReLU(), nn.ReLU(inplace=True), nn.ReLU6(), nn.Hardtanh(-0.5, 0.3, inplace=True), nn.LeakyReLU(0.1), torch.relu, torch.relu_, F.relu6,
    lambda x: x.relu(), lambda x: x.relu_(), lambda x: x.clamp(min=0.1), lambda x: x.clamp(-0.2, 0.4), lambda x: torch.clamp(x, max=0.2),
    lambda x: x.clamp_min(0), lambda x: F.relu(x, inplace=True), lambda x: F.leaky_relu(F.hardtanh(x)),
]
POOLS = [
    nn.MaxPool2d(2), nn.MaxPool2d(3, 2, 1), nn.MaxPool2d(3, stride=2, ceil_mode=True), nn.AdaptiveMaxPool2d(3),
    nn.AdaptiveMaxPool2d((5, None)), lambda x: F.max_pool2d(x, kernel_size=2, padding=1),
    lambda x: torch.max_pool2d(x, [3, 2], (2, 3)), lambda x: F.adaptive_max_pool2d(x, 1),
]


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_an_activation_goes_behind_a_max_pooling_bit_for_bit(activation) -> None:
    model = Called(lambda self, x: F.max_pool2d(activation(x * 2 + 1), 3, 2, 1)).eval()
    x = image()
    x[0, 0, 3, 3], x[0, 1, 5, 5], x[1, 2] = math.nan, math.inf, -math.inf
    fast = Passed(model, fuse_pooling)
    assert same(fast(x), model(x))
    assert fast.targets.index("max_pool2d") == 2 < len(fast.targets) - 1 and not any(name.endswith("_") for name in fast.targets)


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_bias_batch_norm_and_relu_go_behind_a_max_pooling(like_a_gpu, pool, dtype) -> None:
    model = Called(lambda self, x: pool(F.relu(self.norm(self.conv(x)), inplace=True)), conv=nn.Conv2d(4, 6, 3, padding=1),
                   norm=positive(nn.BatchNorm2d(6))).eval().to(dtype)
    fast = Passed(model, fuse_pooling)
    x = image().to(dtype)
    with torch.no_grad():
        plain = torch.conv2d(x, model.conv.weight, None, padding=1) + model.conv.bias.reshape(-1, 1, 1)
        expected = pool(F.relu(model.norm(plain)))
    found = fast(x)
    assert torch.equal(found, expected) and found.stride() == expected.stride()
    assert fast.targets[1].endswith("max_pool2d") and fast.targets[:1] == ["conv2d"]
    assert fast.targets[2:] == ["reshape", "add", "batch_norm", "relu"]


@pytest.mark.parametrize(("conv", "pool", "sizes"), [
    (nn.Conv2d(4, 6, 3), nn.MaxPool2d(2), (4, 12, 12)), (nn.Conv1d(4, 6, 3), nn.MaxPool1d(2), (4, 12)),
    (nn.Conv2d(4, 6, 1), nn.AvgPool2d(2), (4, 12, 12)), (nn.Conv2d(4, 6, 1), nn.AdaptiveAvgPool2d(1), (4, 12, 12)),
    (nn.Conv2d(4, 6, 1), lambda x: x.mean((1, 2)), (4, 12, 12)), (nn.Conv1d(4, 6, 1), lambda x: x.mean(-1), (4, 12)),
])
def test_without_a_batch_too_what_is_moved_gives_the_same(like_a_gpu, conv, pool, sizes) -> None:
    model = Called(lambda self, x: pool(self.conv(x)), conv=conv).eval()
    fast = Passed(model, fuse_pooling)
    assert_no_worse(model, fast, image(*sizes))
    assert fast.backend.found["fuse_pooling"] == 1


@pytest.mark.parametrize("forward", [
    lambda self, x: F.max_pool1d(F.batch_norm(self.conv(x), self.mean, self.variance), 2), lambda self, x: self.conv(x).mean((0, 1)),
], ids=["a norm of places", "an average of channels"])
def test_without_a_batch_what_is_over_other_dimensions_stays(forward) -> None:
    model = Called(forward, conv=nn.Conv1d(3, 4, 1), mean=nn.Parameter(torch.randn(4)), variance=nn.Parameter(torch.rand(4) + 0.5)).eval()
    refuses(fuse_pooling, model, torch.randn(3, 4))


def test_a_cpus_convolution_keeps_its_bias_and_weights_stay_live() -> None:
    model = Called(lambda self, x: F.max_pool2d(torch.relu(self.conv(x)), 2), conv=nn.Conv2d(4, 6, 3)).eval()
    fast, x = Passed(model, fuse_pooling), image()
    assert torch.equal(fast(x), model(x)) and fast.targets == ["conv2d", "max_pool2d", "relu"]
    with torch.no_grad():
        model.conv.bias.add_(1)
        model.conv.weight.mul_(-2)
    assert torch.equal(fast(x), model(x)) and len(fast.graphs) == 1


def test_bias_moves_with_other_dimensions_settings_and_readers(like_a_gpu) -> None:
    def forward(self, x, y, one):
        wide = self.conv(x)
        return F.max_pool2d(torch.relu(wide), 2), wide, F.max_pool1d(self.line(y), 2), F.max_pool2d(self.conv(one), 2)

    model = Called(forward, conv=nn.Conv2d(4, 6, 3, stride=2, padding="valid"), line=nn.Conv1d(4, 4, 3, dilation=2, groups=2)).eval()
    fast, given = Passed(model, fuse_pooling), (image(), image(2, 4, 11), image(4, 9, 9))
    with torch.no_grad():
        assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(fast(*given), model(*given), strict=True))
    assert fast.backend.found["fuse_pooling"] == 3 and fast.targets.count("add") == 2, "the first convolution's result is read twice"


def negative(norm: nn.BatchNorm2d) -> nn.BatchNorm2d:
    positive(norm).weight.data[1] *= -1
    return norm


@pytest.mark.parametrize("forward", [
    lambda self, x: (lambda y: (F.max_pool2d(y, 2), y))(torch.relu(x)),  # read twice
    lambda self, x: F.max_pool2d(torch.relu(x), 2, return_indices=True),
    lambda self, x: F.max_pool2d(torch.relu(x), 3, 1, 1),  # shrinks nothing
    lambda self, x: F.max_pool2d(torch.relu(x), 2, padding=1, dilation=5),
    lambda self, x: F.max_pool2d(self.negative(x), 2),
    lambda self, x: F.max_pool2d(self.infinite(x), 2),
    lambda self, x: F.max_pool2d(self.training_norm(x), 2),
    lambda self, x: F.max_pool2d(torch.sigmoid(x), 2),
    lambda self, x: F.max_pool2d(F.leaky_relu(x, -0.1), 2),
    lambda self, x: F.max_pool2d(F.leaky_relu(x, math.inf), 2),
    lambda self, x: F.max_pool2d(F.gelu(x), 2),
    lambda self, x: F.max_pool2d(torch.clamp(x, min=self.bounds), 2),
    lambda self, x: F.max_pool2d(torch.relu_(x), 2),  # the caller's own tensor
    lambda self, x: F.max_pool2d(torch.relu_((x + 1).view(2, 4, 12, 12)), 2),
    lambda self, x: F.avg_pool2d(torch.relu(x), 2),
    lambda self, x: (lambda y, z: (y.add_(1), F.max_pool2d(z, 2)))(x + 1, torch.relu(x)),  # writes in between
])
def test_what_does_not_commute_or_is_read_elsewhere_stays(like_a_gpu, forward) -> None:
    infinite = positive(nn.BatchNorm2d(4))
    infinite.bias.data[0] = math.inf
    training_norm = nn.BatchNorm2d(4)
    model = Called(forward, negative=negative(nn.BatchNorm2d(4)), infinite=infinite, training_norm=training_norm,
                   bounds=torch.randn(1, 4, 12, 12)).eval()
    training_norm.train()
    refuses(fuse_pooling, model, image())


@pytest.mark.parametrize("forward", [
    lambda self, x: F.max_pool2d(self.line(x), 2),  # over channels
    lambda self, x: F.avg_pool2d(self.point(x), 2),
    lambda self, x: self.point(x).mean(1),
])
def test_a_pooling_over_channels_keeps_its_place(like_a_gpu, forward) -> None:
    refuses(fuse_pooling, Called(forward, line=nn.Conv1d(4, 6, 3), point=nn.Conv1d(4, 6, 1)).eval(), image(2, 4, 12))


def test_after_folding_batch_norms_of_any_sign_go_with_the_convolution(like_a_gpu) -> None:
    model = Called(lambda self, x: F.max_pool2d(torch.relu(self.norm(self.conv(x))), 2), conv=nn.Conv2d(4, 6, 3, bias=False),
                   norm=negative(nn.BatchNorm2d(6))).eval()
    fast = Passed(model, fold_linear_bn, fuse_pooling)
    assert_no_worse(model, fast, image())
    assert fast.targets == ["conv2d", "max_pool2d", "reshape", "add", "relu"]


AVERAGES = [
    lambda y: F.avg_pool2d(y, 2), lambda y: F.avg_pool2d(y, 3, 2), lambda y: F.avg_pool2d(y, 3, 2, 1, count_include_pad=False),
    nn.AvgPool2d(2, 2), nn.AvgPool2d((2, 3), padding=(1, 0), count_include_pad=False), nn.AdaptiveAvgPool2d(1),
    nn.AdaptiveAvgPool2d((4, 5)), lambda y: F.adaptive_avg_pool2d(y, (6, None)), lambda y: y.mean((2, 3)),
    lambda y: y.mean([-1, -2], keepdim=True), lambda y: y.mean(3), lambda y: torch.mean(y, dim=(-2, -1)),
]


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("average", AVERAGES)
def test_a_1x1_convolution_goes_behind_an_average(average, bias) -> None:
    model = Called(lambda self, x: average(self.conv(torch.relu(x))), conv=nn.Conv2d(16, 8, 1, bias=bias)).eval()
    fast = Passed(model, fuse_pooling)
    assert_no_worse(model, fast, image(2, 16, 12, 12))
    assert fast.targets.index("conv2d") == 2 and fast.backend.found["fuse_pooling"] == 1


def test_groups_other_dimensions_and_bfloat16() -> None:
    model = Called(lambda self, x: F.avg_pool2d(self.conv(x), 2), conv=nn.Conv2d(64, 32, 1, groups=2)).eval()
    line = Called(lambda self, x: F.avg_pool1d(self.conv(x), 2), conv=nn.Conv1d(16, 8, 1)).eval()
    assert_no_worse(model, Passed(model, fuse_pooling), image(2, 64, 12, 12))
    assert_no_worse(line, Passed(line, fuse_pooling), image(2, 16, 12))
    x, narrow = image(2, 64, 12, 12).relu().bfloat16(), copy.deepcopy(model).bfloat16()
    with torch.no_grad():
        exact = copy.deepcopy(narrow).double()(x.double())
        old, new = (float((found - exact).square().mean().sqrt()) for found in (narrow(x), Passed(narrow, fuse_pooling)(x)))
    assert new <= 1.5 * old


@pytest.mark.parametrize("forward", [
    lambda self, x: F.avg_pool2d(self.conv(x), 3, 2, 1),  # counts its padding
    lambda self, x: F.avg_pool2d(self.conv(x), 3, 2, ceil_mode=True),
    lambda self, x: F.avg_pool2d(self.conv(x), 2, divisor_override=3),
    lambda self, x: F.avg_pool2d(self.conv(x), 3, 1),  # the wide input averaged is more than the narrow result
    lambda self, x: F.avg_pool2d(self.strided(x), 2),
    lambda self, x: F.avg_pool2d(self.padded(x), 2),
    lambda self, x: F.avg_pool2d(self.three(x), 2),
    lambda self, x: F.avg_pool2d(torch.relu(self.conv(x)), 2),
    lambda self, x: (lambda y: (F.avg_pool2d(y, 2), y))(self.conv(x)),
    lambda self, x: (lambda z, y: (z.mul_(2), F.avg_pool2d(y, 2)))(x, self.conv(x)),
    lambda self, x: self.conv(x).mean((0, 2, 3)),
    lambda self, x: self.conv(x).mean((2, 3), dtype=torch.float64),
    lambda self, x: self.conv(x).mean(),
])
def test_other_averages_and_convolutions_stay(forward) -> None:
    model = Called(forward, conv=nn.Conv2d(16, 8, 1), strided=nn.Conv2d(16, 8, 1, 2), padded=nn.Conv2d(16, 8, 1, padding=1),
                   three=nn.Conv2d(16, 8, 3)).eval()
    refuses(fuse_pooling, model, image(2, 16, 12, 12))


def test_under_autocast_a_convolution_in_another_type_stays() -> None:
    def forward(self, x):
        with torch.autocast("cpu", torch.bfloat16):
            y = self.conv(x)
        return F.avg_pool2d(y, 2)

    refuses(fuse_pooling, Called(forward, conv=nn.Conv2d(16, 8, 1)).eval(), image(2, 16, 12, 12))


def test_an_average_that_autocast_widens_stays() -> None:
    def forward(self, x):
        with torch.autocast("cpu", torch.bfloat16):
            return F.avg_pool3d(self.conv(x), 2)

    refuses(fuse_pooling, Called(forward, conv=nn.Conv3d(16, 8, 1)).eval().bfloat16(), image(2, 16, 4, 4, 4).bfloat16())


@pytest.mark.parametrize("sizes", [(5, 9, 13), (13, 9, 5), (9, 5, 3)])
def test_wide_windows_are_made_from_narrow_ones(sizes) -> None:
    windows = []

    def seen(graph, _inputs):
        windows.extend(node.args[1] for node in graph.graph.nodes if len(node.args) > 2)
        return 1

    def forward(x):
        return torch.cat([x, *(F.max_pool2d(x, size, 1, size // 2) for size in sizes)], 1)

    x = image(2, 3, 11, 7)
    x[0, 0, 3, 3], x[0, 1, 5, 5], x[1, 2] = math.nan, math.inf, -math.inf
    fast = Passed(forward, fuse_pooling, seen)
    assert same(fast(x), forward(x)) and windows == {5: [5, 5, 5], 13: [5, 5, 5], 9: [3, 3, 5]}[sizes[0]]


def test_chains_on_chains() -> None:
    def forward(x):
        first, second = F.max_pool2d(x, 3, 1, 1), F.max_pool2d(x, 5, 1, 2)
        return F.max_pool2d(second, 3, 1, 1) + F.max_pool2d(second, 7, 1, 3) + first

    fast, x = Passed(forward, fuse_pooling), image()
    assert torch.equal(fast(x), forward(x)) and fast.backend.found["fuse_pooling"] == 2


@pytest.mark.parametrize("forward", [
    lambda x: F.max_pool2d(x, 3, 1, 1) + F.max_pool2d(x, 4, 1, 2)[..., 1:, 1:],
    lambda x: (F.max_pool2d(x, 3, 1, 1), F.max_pool2d(x, 5, 2, 2)),
    lambda x: (F.max_pool2d(x, 3, 1, 1), torch.max_pool2d(x, 5, [], 2)),
    lambda x: (F.max_pool2d(x, 3, 1, 1), F.max_pool2d(x, 5, 1, 1)),
    lambda x: (lambda a, b, c: (a.add_(1), b, c))(F.max_pool2d(x, 5, 1, 2), F.max_pool2d(x, 5, 1, 2), F.max_pool2d(x, 9, 1, 4)),
    lambda x: (F.max_pool2d(x, 5, 1, 2), F.max_pool2d(x, 5, 1, 2), F.max_pool2d(x, 9, 1, 4)),  # two results, not one twice
    lambda x: (F.max_pool2d(x, 3, 1, 1), F.max_pool2d(x, 5, 1, 2, return_indices=True)),
    lambda x: (lambda y: (F.max_pool2d(y, 3, 1, 1), y.mul_(2), F.max_pool2d(y, 5, 1, 2)))(x + 1),
])
def test_windows_that_do_not_nest_stay(forward) -> None:
    refuses(fuse_pooling, forward, image())


WORKLOAD = '''
import torch
from torch import nn


def get_model_and_input(b=2):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Conv2d(8, 4, 1), nn.AvgPool2d(3), nn.Flatten())
    return model.eval(), torch.randn(b, 3, 8, 8)
'''


def test_a_generated_file_runs(tmp_path: Path) -> None:
    workload, file = tmp_path / "net_workload.py", tmp_path / "optimized.py"
    workload.write_text(WORKLOAD)
    spec = TensorSpec(path="", shape=(2, 3, 8, 8), dtype="float32", device="cpu")
    facts = WorkloadFacts.model_validate({
        "form": "model", "version": None, "params": {"b": 2}, "inputs": (spec,), "outputs": (), "training": False, "dtype": "float32",
        "parameter_count": 260, "parameter_bytes": 1040, "already_compiled": False})
    file.write_text(render_source(WorkloadRef(path=workload, name="net"), facts, [CATALOGUE["no_grad"], CATALOGUE["fuse_pooling"]],
                                  device="cpu", file_name="optimized.py", headline=["Judged."], standalone=True))
    made = runpy.run_path(str(file))
    torch._dynamo.reset()
    model, x = made["original"](b=2)
    with torch.no_grad():
        assert torch.allclose(made["optimize"](model, x)(x), model(x), atol=1e-6)

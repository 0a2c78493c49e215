"""The rewrites: same values, same structure, the given model untouched, flags put back."""

from __future__ import annotations

import dataclasses
import gc
import weakref
from collections import OrderedDict, namedtuple

import pytest
import torch
from torch import nn

from kernelwright.probe.rewrites.bf16 import bf16
from kernelwright.probe.rewrites.bf16_autocast import bf16_autocast
from kernelwright.probe.rewrites.channels_last import channels_last
from kernelwright.probe.rewrites.cuda_graph import cuda_graph
from kernelwright.probe.rewrites.cudnn_benchmark import cudnn_benchmark
from kernelwright.probe.rewrites.edges import apart, narrowed, widened
from kernelwright.probe.rewrites.fold_conv_bn import fold_conv_bn
from kernelwright.probe.rewrites.no_grad import no_grad
from kernelwright.probe.rewrites.strict_float32 import strict_float32
from kernelwright.probe.rewrites.tf32 import tf32
from kernelwright.probe.rewrites.trees import leaves, map_tensors
from stand_in_graph import OnGpu, stand_in

Pair = namedtuple("Pair", "x y")


@dataclasses.dataclass(frozen=True)
class Record:
    logits: torch.Tensor
    note: str = "kept"


class ConvNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.bn = nn.BatchNorm2d(8)
        self.block = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU())
        nn.init.normal_(self.bn.running_mean)
        nn.init.uniform_(self.bn.running_var, 0.5, 2.0)

    def forward(self, x, mask=None):
        y = self.block(torch.relu(self.bn(self.conv(x))))
        return y if mask is None else y * mask


def conv_net() -> tuple[ConvNet, torch.Tensor]:
    torch.manual_seed(0)
    return ConvNet().eval(), torch.randn(2, 3, 8, 8)


def test_trees_keep_every_container_and_the_original() -> None:
    nest = {"p": Pair(torch.ones(2), 3), "r": Record(torch.ones(1)), "l": [torch.zeros(1), None], "o": OrderedDict(a=torch.ones(1))}
    doubled = map_tensors(lambda tensor: tensor + 1, nest)
    assert isinstance(doubled["p"], Pair) and doubled["p"].x.tolist() == [2, 2] and doubled["p"].y == 3
    assert isinstance(doubled["r"], Record) and doubled["r"].logits.item() == 2 and doubled["r"].note == "kept"
    assert type(doubled["o"]) is OrderedDict and doubled["o"]["a"].item() == 2
    assert nest["p"].x.tolist() == [1, 1] and nest["r"].logits.item() == 1 and nest["o"]["a"].item() == 1
    assert [path for path, _ in leaves(nest)] == ["p.0", "p.1", "r.logits", "r.note", "l.0", "l.1", "o.a"]


def test_trees_take_torch_return_types() -> None:
    result = map_tensors(torch.clone, torch.max(torch.tensor([[1.0, 3.0]]), dim=1))
    assert result.values.item() == 3 and result.indices.item() == 1


def test_no_grad_records_nothing_and_leaves_the_model_trainable() -> None:
    model = nn.Linear(4, 4)
    x = torch.randn(2, 4)
    output = no_grad(model, (x,), {})(x)
    assert not output.requires_grad and torch.equal(output, model(x))
    assert all(parameter.requires_grad for parameter in model.parameters()) and model(x).requires_grad
    assert not output.is_inference()


@torch.no_grad()
def test_channels_last_is_equal_contiguous_outside_and_leaves_the_model() -> None:
    model, x = conv_net()
    fast = channels_last(model, (x,), {})
    output = fast(x)
    assert torch.allclose(output, model(x), atol=1e-5)
    assert output.is_contiguous() and output.stride() == model(x).stride()
    assert model.conv.weight.is_contiguous()
    weights = dict(fast.named_parameters())
    assert weights["inner.conv.weight"].is_contiguous(memory_format=torch.channels_last)
    assert weights["inner.bn.weight"] is model.bn.weight


def test_channels_last_under_grad_puts_gradients_into_the_models_own_weights() -> None:
    model, x = conv_net()
    channels_last(model, (x,), {})(x).sum().backward()
    assert model.conv.weight.grad is not None and model.conv.weight.grad.abs().sum() > 0


@pytest.mark.parametrize("model", [nn.Linear(3, 3), torch.relu])
def test_channels_last_abstains_without_2d_convolutions(model: object) -> None:
    with pytest.raises(NotImplementedError, match="not applicable"):
        channels_last(model, (), {})


@torch.no_grad()
def test_folding_removes_batch_norms_keeps_values_and_the_original() -> None:
    model, x = conv_net()
    folded = fold_conv_bn(model, (x,), {})
    assert not any(isinstance(module, nn.BatchNorm2d) for module in folded.modules())
    assert torch.allclose(folded(x), model(x), atol=1e-5)
    assert isinstance(model.bn, nn.BatchNorm2d) and isinstance(model.block[1], nn.BatchNorm2d) and model.block[0].bias is None


@torch.no_grad()
def test_folding_keeps_the_branch_that_a_missing_argument_takes() -> None:
    model, x = conv_net()
    mask = torch.rand(2, 1, 8, 8)
    assert torch.allclose(fold_conv_bn(model, (x,), {"mask": mask})(x, mask=mask), model(x, mask), atol=1e-5)
    assert torch.allclose(fold_conv_bn(model, (x,), {})(x), model(x), atol=1e-5)


@torch.no_grad()
def test_a_batch_norm_over_places_is_not_folded_and_one_over_channels_is() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv1d(3, 4, 3, padding=1), nn.BatchNorm1d(4)).eval()
    nn.init.normal_(model[1].running_mean)
    with pytest.raises(NotImplementedError, match="not applicable"):
        fold_conv_bn(model, (torch.randn(3, 4),), {})  # no batch: the norm's 4 channels are the 4 places
    x = torch.randn(2, 3, 9)
    assert torch.allclose(fold_conv_bn(model, (x,), {})(x), model(x), atol=1e-5)


class Reused(nn.Module):
    """The convolution's result is also used without the norm."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3)

    def forward(self, x):
        y = self.conv(x)
        return self.bn(y) + y


class Branching(Reused):
    def forward(self, x):
        return self.bn(self.conv(x)) if x.sum() > 0 else x


class SharedConv(Reused):
    def forward(self, x):
        return self.conv(self.bn(self.conv(x)))


@pytest.mark.parametrize("model", [Reused().eval(), Branching().eval(), SharedConv().eval(), ConvNet().train(), nn.Linear(2, 2).eval(),
                                   torch.relu, nn.Sequential(nn.Conv2d(3, 3, 1), nn.ReLU(), nn.BatchNorm2d(3)).eval()])
def test_folding_abstains_where_the_structure_does_not_allow_it(model: object) -> None:
    with pytest.raises(NotImplementedError, match="not applicable"):
        fold_conv_bn(model, (torch.randn(1, 3, 4, 4),), {})


@torch.no_grad()
def test_bf16_gives_back_float32_within_its_precision_and_leaves_the_model() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64)).eval()
    x = torch.randn(8, 64)
    output, exact = bf16(model, (x,), {})(x), model(x)
    error = float((output - exact).norm() / exact.norm())
    assert output.dtype == torch.float32 and 1e-5 < error < 3e-2
    assert {tensor.dtype for tensor in model.parameters()} == {torch.float32} and model[1].running_mean.dtype == torch.float32


@torch.no_grad()
def test_bf16_leaves_integer_inputs_alone_and_keeps_tied_weights_tied() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(10, 8)
            self.head = nn.Linear(8, 10, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, ids):
            return self.head(self.embed(ids))

    model = Tied()
    fast = bf16(model, (), {})
    assert fast(torch.tensor([[1, 9]])).dtype == torch.float32
    assert fast.inner.head.weight is fast.inner.embed.weight


@torch.no_grad()
def test_bf16_lstm_runs() -> None:
    model = nn.LSTM(8, 8, batch_first=True)
    x = torch.randn(2, 3, 8)
    output, (hidden, _cell) = bf16(model, (x,), {})(x)
    assert output.dtype == hidden.dtype == torch.float32
    assert torch.allclose(output, model(x)[0], atol=5e-2)


def test_autocast_keeps_dtype_structure_and_gradients() -> None:
    torch.manual_seed(0)
    model = nn.Linear(64, 64)
    x = torch.randn(8, 64)
    output = bf16_autocast(lambda v: Record(model(v)), (x,), {})(x)
    assert isinstance(output, Record) and output.logits.dtype == torch.float32
    assert not torch.equal(output.logits, model(x)) and torch.allclose(output.logits, model(x), atol=5e-2)
    output.logits.sum().backward()
    assert model.weight.grad is not None
    assert not torch.is_autocast_enabled("cpu")


def flags() -> tuple[object, ...]:
    return torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32, torch.backends.cudnn.benchmark


@pytest.mark.parametrize(("rewrite", "inside"), [
    (tf32, ("high", True, False)), (strict_float32, ("highest", False, False)), (cudnn_benchmark, ("highest", True, True))])
def test_flags_are_set_during_the_call_only(rewrite: object, inside: tuple[object, ...]) -> None:
    before = flags()
    assert rewrite(flags, (), {})() == inside
    assert flags() == before != inside

    def fails() -> None:
        raise ValueError

    with pytest.raises(ValueError):
        rewrite(fails, (), {})()
    assert flags() == before


def test_cuda_graph_refuses_inputs_on_the_cpu() -> None:
    with pytest.raises(NotImplementedError, match="not applicable"):
        cuda_graph(torch.relu, (torch.ones(2),), {})


def test_what_a_cuda_graph_reads_lives_as_long_as_its_call(monkeypatch):
    """A graph holds addresses. The weights that an earlier rewrite made have no other owner than the model it was captured from."""
    stand_in(monkeypatch)

    class Model:
        def __call__(self):
            return torch.ones(2)

    model = Model()
    alive = weakref.ref(model)
    call = cuda_graph(model, (), {})
    del model
    gc.collect()
    assert alive() is not None and call().tolist() == [1.0, 1.0]
    del call
    gc.collect()
    assert alive() is None


@torch.no_grad()
def test_the_copies_into_and_out_of_a_graph_cast_and_nothing_else_does(monkeypatch):
    stand_in(monkeypatch)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8)).eval()
    one, two = (torch.randn(4, 8).as_subclass(OnGpu) for _ in range(2))
    inside = cuda_graph(bf16(model, (one,), {}), (one,), {})
    bare = bf16(model, (one,), {}, edges=False)
    around = cuda_graph(bare, (narrowed(one),), {}, result=apart)
    first, second = around(one), around(two)
    for got, given in ((first, one), (second, two)):
        assert got.dtype == torch.float32 and torch.equal(got, inside(given)) and torch.equal(got, bf16(model, (given,), {})(given))
    assert not torch.equal(first, second) and one.dtype == torch.float32
    same = {"ids": torch.arange(3).as_subclass(OnGpu), "wide": torch.ones(2).as_subclass(OnGpu)}
    kept = cuda_graph(lambda batch: batch, (same,), {}, result=apart)(same)
    assert kept["ids"].dtype == torch.int64 and kept["wide"].data_ptr() != same["wide"].data_ptr()


def test_what_is_narrowed_is_widened_again() -> None:
    for value in (torch.randn(5), torch.arange(5), torch.randn(5, dtype=torch.float64), torch.tensor([True])):
        back = widened(narrowed(value))
        assert back.dtype == value.dtype and torch.allclose(back.double(), value.double(), rtol=2**-8, atol=0)
        assert torch.equal(apart(narrowed(value)), back) and apart(value).data_ptr() != value.data_ptr()

"""An output whose TF32 error rests on few roundings: a candidate of the same precision is right, one of a lower precision wrong."""

import copy
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from judge_in_process import own_round, workload_of
from kernelwright.judge.correctness import Expected, check_round, distances
from kernelwright.judge.tensors import Leaf
from kernelwright.judge.tf32_luck import DRAWS, FIRST_DRAWS, SPREAD, Draws
from kernelwright.probe import judge_reference
from kernelwright.probe.judge_reference import rounded_at_random, tf32_weights
from property_examples import examples

ROWS, CLASSES = 16, 10
TF32 = 1e-4
"""What the outputs err by, relative to their size."""
EXACT = np.random.default_rng(3).normal(size=(ROWS, CLASSES))


def leaf(values, dtype="float32", path=""):
    return Leaf(path, dtype, values.shape, "cuda", "Tensor", False, values.ravel())


def erring(rng, scale):
    """The outputs with an error that all rows share, as roundings of weights give it."""
    return leaf((EXACT + scale * np.sqrt(np.mean(EXACT**2)) * rng.normal(size=CLASSES)).astype(np.float32))


def never(*_):
    raise AssertionError("asked for")


def round_of(rng, candidate, *, draws=True):
    expected = Expected([erring(rng, TF32)], [leaf(EXACT, "float64")])
    more = Draws(lambda _: distances([erring(rng, SPREAD * TF32)], expected)) if draws else None
    return check_round([candidate], replace(expected, draws=more), round_number=0, level="equal")[0][0]


def share_wrong(scale, *, rounds=1500, draws=True):
    rng = np.random.default_rng(17)
    return sum(not round_of(rng, erring(rng, scale), draws=draws).passed for _ in range(rounds)) / rounds


def test_a_candidate_of_the_same_precision_is_no_longer_wrong_by_luck():
    assert 0.01 < share_wrong(TF32, draws=False) < 0.03
    assert share_wrong(TF32) == 0


def test_a_lower_precision_stays_wrong():
    assert share_wrong(8 * TF32, rounds=500) > 0.99  # bfloat16 has 3 bits less


def test_the_note_says_where_the_limit_came_from():
    rng, found = np.random.default_rng(5), []
    while not any("draws" in error.note for error in found):
        found.append(round_of(rng, erring(rng, TF32)))
    widened = next(error for error in found if "draws" in error.note)
    assert widened.passed and re.fullmatch(r"limit from \d more draws of the reference's TF32 roundings", widened.note)
    assert widened.limit > 2 * widened.reference_error + 1e-5


def test_nothing_is_asked_for_within_the_limit_nor_far_beyond_it():
    rng = np.random.default_rng(5)
    for candidate, passed in ((erring(rng, 1e-6), True), (erring(rng, 0.1), False)):
        expected = Expected([erring(rng, TF32)], [leaf(EXACT, "float64")], draws=Draws(never))
        assert check_round([candidate], expected, round_number=0, level="equal")[0][0].passed is passed


def test_where_no_weight_is_rounded_the_limit_stays():
    rng = np.random.default_rng(5)
    expected = Expected([erring(rng, 1e-6)], [leaf(EXACT, "float64")], draws=Draws(lambda _: None))
    error = check_round([erring(rng, TF32)], expected, round_number=0, level="equal")[0][0]
    assert not error.passed and "draws" not in error.note


def test_an_output_that_is_not_finite_stays_wrong():
    rng = np.random.default_rng(5)
    got = erring(rng, TF32)
    got.values[3] = np.nan
    error = round_of(rng, got)
    assert not error.passed and "nan" in error.note


def test_runs_are_asked_for_once_and_can_be_cut_to_some_leaves():
    asked = []
    draws = Draws(lambda number: asked.append(number) or ([(1.0, 2.0), (3.0, 4.0)] if number < 2 else None))
    some = draws.only([1])
    assert next(iter(some)) == [(3.0, 4.0)] and asked == [0]
    assert list(some) == [[(3.0, 4.0)]] * 2 and list(some) == [[(3.0, 4.0)]] * 2 and list(draws) == [[(1.0, 2.0), (3.0, 4.0)]] * 2
    assert asked == [0, 1, 2]


def test_no_more_is_drawn_than_decides():
    def drawn(scale, *sizes):
        asked, sizes = [], (*sizes, *[1.0] * (DRAWS - len(sizes)))
        rng = np.random.default_rng(5)
        expected = Expected([erring(rng, TF32)], [leaf(EXACT, "float64")])
        (norm, largest), = distances(expected.reference, expected)
        candidate = leaf((EXACT + scale * (expected.reference[0].values.reshape(EXACT.shape) - EXACT)).astype(np.float32))

        def ask(number):
            asked.append(number)
            return [(sizes[number] * norm, sizes[number] * largest)]

        error = check_round([candidate], replace(expected, draws=Draws(ask)), round_number=0, level="equal")[0][0]
        return error.passed, len(asked)

    assert drawn(4, 1.0, 9.0) == (True, 2)
    assert drawn(4) == (False, DRAWS)
    assert drawn(30) == (False, FIRST_DRAWS)


@given(st.integers(0, 2**31), st.floats(-30, 30))
@examples(50)
def test_weights_are_rounded_to_a_neighbour_in_tf32(seed, exponent):
    weight = torch.randn(64, generator=torch.Generator().manual_seed(seed)) * 2.0**exponent
    got = rounded_at_random(weight, seed)
    assert not (got.view(torch.int32) & (2**13 - 1)).any()
    assert ((got - weight).abs() < 2.0**-10 * weight.abs()).all()
    assert torch.equal(rounded_at_random(got, seed + 1), got) and torch.equal(rounded_at_random(weight, seed), got)


def test_the_roundings_have_no_bias_and_twice_the_variance_of_the_nearest():
    weight = 1 + torch.rand(200_000, generator=torch.Generator().manual_seed(1))
    error = (rounded_at_random(weight, 2) - weight).double() * 2**10  # in units of the last place
    assert error.mean().abs() < 0.004
    assert error.var().item() == pytest.approx(SPREAD**2 / 12, rel=0.02)


def test_what_is_not_finite_is_not_rounded():
    weight = torch.tensor([float("inf"), -float("inf"), float("nan"), 0.0])
    assert torch.equal(rounded_at_random(weight, 3).nan_to_num(7.0), weight.nan_to_num(7.0))


def tf32(values):
    """Rounded to the nearest."""
    bits = values.contiguous().view(torch.int32)
    return ((bits + 0x0FFF + ((bits >> 13) & 1)) & ~0x1FFF).view(torch.float32)


class Conv(torch.nn.Conv2d):
    """A convolution that computes as a GPU's tensor cores do where torch's flag allows it."""

    def forward(self, input):
        if not torch.backends.cudnn.allow_tf32 or input.dtype != torch.float32:
            return super().forward(input)
        return self._conv_forward(tf32(input), tf32(self.weight), self.bias)


class Layers(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.conv, self.again = torch.nn.Embedding(8, 8), Conv(1, 4, 3, padding=1), Conv(4, 4, 3, padding=1)
        self.plain, self.tied, self.head = torch.nn.Conv2d(4, 4, 3), Conv(4, 4, 1), torch.nn.Linear(4, 2)
        self.table.weight = self.tied.weight

    def forward(self, x):
        x = self.again(self.again(self.conv(x).relu()).relu())
        return self.head(self.plain(self.tied(input=x)).mean((2, 3)))


def test_only_weights_that_are_rounded_are_found():
    torch.manual_seed(0)
    model = Layers()
    with tf32_weights(model) as found:
        model(torch.randn(2, 1, 8, 8))
    assert [id(one) for one in found] == [id(model.conv.weight), id(model.again.weight)]
    assert not any(module._forward_hooks for module in model.modules())


def test_where_the_flag_is_off_nothing_is_found(monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    model = Layers()
    with tf32_weights(model) as found:
        model(torch.randn(2, 1, 8, 8))
    assert found == []


class Pooled(torch.nn.Module):
    """Two convolutions with BatchNorm, means over the image, four classes; or the loss alone."""

    def __init__(self, loss):
        super().__init__()
        self.layers = torch.nn.ModuleList([Conv(3, 16, 3, padding=1), Conv(16, 16, 3, padding=1)])
        self.norms = torch.nn.ModuleList([torch.nn.BatchNorm2d(16), torch.nn.BatchNorm2d(16)])
        for norm in self.norms:
            torch.nn.init.normal_(norm.running_mean, std=0.1)
            torch.nn.init.uniform_(norm.running_var, 0.5, 1.5)
        self.head, self.loss = torch.nn.Linear(16, 4), loss

    def forward(self, x):
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = norm(layer(x)).relu()
        x = self.head(x.mean((2, 3)))
        return torch.nn.functional.cross_entropy(x, torch.arange(len(x)) % 4) if self.loss else x


@pytest.mark.parametrize("loss", [False, True])
def test_a_folded_batch_norm_is_right_with_any_weights(loss, monkeypatch):
    monkeypatch.setattr(judge_reference, "_need_tf32", lambda _workload: None)
    plain_wrong = drawn_wrong = 0
    for seed in range(60):
        torch.manual_seed(seed)
        model = Pooled(loss).eval().requires_grad_(False)
        folded = copy.deepcopy(model)
        for layer, norm in zip(folded.layers, folded.norms, strict=True):
            layer.weight, layer.bias = torch.nn.utils.fuse_conv_bn_weights(
                layer.weight, layer.bias, norm.running_mean, norm.running_var, norm.eps, norm.weight, norm.bias)
        folded.norms = torch.nn.ModuleList([torch.nn.Identity(), torch.nn.Identity()])
        without, drawn = own_round(workload_of(model, lambda: [torch.randn(2, 3, 12, 12)]), folded, seed)
        plain_wrong, drawn_wrong = plain_wrong + (not without[0].passed), drawn_wrong + (not drawn[0].passed)
    assert plain_wrong >= 3 and drawn_wrong == 0


def test_on_the_cpu_nothing_is_drawn():
    torch.manual_seed(0)
    model = torch.nn.Conv2d(3, 4, 3)

    def candidate(x):
        return model(x) * (1 + 1e-5)

    without, with_draws = own_round(workload_of(model, lambda: [torch.randn(2, 3, 8, 8)]), candidate, 1)
    assert without == with_draws and not with_draws[0].passed

"""An output whose TF32 error rests on few roundings: a candidate of the same precision is right, one of a lower precision wrong."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from judge_in_process import own_round, workload_of
from kernelwright.judge.correctness import Expected, check_round
from kernelwright.judge.tensors import Leaf
from kernelwright.judge.tf32_luck import DRAWS, SPREAD, Draws
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


def round_of(rng, candidate, *, strict=1e-7, draws=True, reference=TF32):
    more = Draws(lambda: [erring(rng, strict)], lambda _: [erring(rng, SPREAD * TF32)]) if draws else None
    expected = Expected([erring(rng, reference)], [leaf(EXACT, "float64")], draws=more)
    return check_round([candidate], expected, round_number=0, level="equal")[0][0]


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
    assert widened.passed and widened.note == f"limit from {DRAWS} more draws of the reference's TF32 roundings"
    assert widened.limit > 2 * widened.reference_error + 1e-5


def test_nothing_is_asked_for_within_the_limit_nor_far_beyond_it():
    rng = np.random.default_rng(5)
    for candidate, passed in ((erring(rng, 1e-6), True), (erring(rng, 0.1), False)):
        expected = Expected([erring(rng, TF32)], [leaf(EXACT, "float64")], draws=Draws(never, never))
        assert check_round([candidate], expected, round_number=0, level="equal")[0][0].passed is passed


def test_where_tf32_is_not_the_cause_the_limit_stays():
    rng = np.random.default_rng(5)
    expected = Expected([erring(rng, 1e-6)], [leaf(EXACT, "float64")], draws=Draws(lambda: [erring(rng, 1e-6)], never))
    assert not check_round([erring(rng, TF32)], expected, round_number=0, level="equal")[0][0].passed
    none = replace(expected, draws=Draws(lambda: None, never))
    assert not check_round([erring(rng, TF32)], none, round_number=0, level="equal")[0][0].passed
    no_weights = replace(expected, draws=Draws(lambda: [erring(rng, 1e-9)], lambda _: None))
    assert not check_round([erring(rng, TF32)], no_weights, round_number=0, level="equal")[0][0].passed


def test_an_output_that_is_not_finite_stays_wrong():
    rng = np.random.default_rng(5)
    got = erring(rng, TF32)
    got.values[3] = np.nan
    error = round_of(rng, got)
    assert not error.passed and "nan" in error.note


def test_runs_are_asked_for_once_and_can_be_cut_to_some_leaves():
    asked = []

    def strict():
        asked.append("strict")
        return ["a", "b"]

    draws = Draws(strict, lambda number: asked.append(number) or (["c", "d"] if number < 2 else None))
    some = draws.only([1])
    assert some.strict() == ["b"] and some.strict() == ["b"] and draws.strict() == ["a", "b"]
    assert some.rounded() == [["d"], ["d"]] and draws.rounded() == [["c", "d"], ["c", "d"]]
    assert asked == ["strict", 0, 1, 2]


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


class Layers(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.depthwise = torch.nn.Conv2d(8, 8, 3), torch.nn.Conv2d(8, 8, 3, groups=8)
        self.lstm, self.linear = torch.nn.LSTM(8, 8), torch.nn.Linear(8, 8)
        self.table, self.tied = torch.nn.Embedding(8, 8), torch.nn.Linear(8, 8)
        self.tied.weight = self.table.weight
        self.half = torch.nn.Conv2d(8, 8, 3).half()


@pytest.mark.parametrize(("flags", "names"), [
    (("highest", True), ["conv.weight", "lstm.weight_hh_l0", "lstm.weight_ih_l0"]),
    (("high", False), ["linear.weight"]),
    (("highest", False), []),
    (("ieee", "tf32", "ieee"), ["conv.weight"]),
])
def test_only_weights_that_the_flags_let_be_rounded_are(flags, names):
    model = Layers()
    found = {id(one) for one in tf32_weights(model, flags)}
    assert sorted(name for name, one in model.named_parameters() if id(one) in found) == names


def test_on_the_cpu_nothing_is_drawn():
    torch.manual_seed(0)
    model = torch.nn.Conv2d(3, 4, 3)

    def candidate(x):
        return model(x) * (1 + 1e-5)

    without, with_draws = own_round(workload_of(model, lambda: [torch.randn(2, 3, 8, 8)]), candidate, 1)
    assert without == with_draws and not with_draws[0].passed

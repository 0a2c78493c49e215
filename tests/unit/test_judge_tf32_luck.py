"""An output whose TF32 error rests on few roundings: a candidate of the same precision is right, one of a lower precision wrong."""

import copy
import math
import re
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from emulated_tf32 import Conv, Pooled, folded
from judge_in_process import elsewhere, own_round, workload_of
from kernelwright.judge.correctness import Expected, check_elsewhere, check_round, distances
from kernelwright.judge.distributions import Budget
from kernelwright.judge.exchange import OWN_ROUNDS, Seeds
from kernelwright.judge.expectations import Expectations
from kernelwright.judge.options import Deadline
from kernelwright.judge.rounds import Rounds
from kernelwright.judge.tensors import Leaf
from kernelwright.judge.tf32_luck import ALIKE_DRAWS, DRAWS, LEAST_DRAWS, SPREAD, Draws, usual
from kernelwright.probe import judge_reference, judge_tf32, judge_worker
from kernelwright.probe.judge_tf32 import rounded_at_random
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


@pytest.mark.parametrize(("freedom", "wrong", "right"), [(1, (30, 2.3), (37, 63)), (4, (10, 0.1), (22, 39)), (10, (2.0, 0.0), (11, 19)),
                                                         (100, (0.0, 0.0), (0, 0))])
def test_what_is_said_of_the_limit_is_what_a_simulation_gives(freedom, wrong, right):
    rng, rounds = np.random.default_rng(freedom), 40_000
    own, theirs, *drawn = np.sqrt(rng.chisquare(freedom, size=(2 + DRAWS, rounds)) / freedom)
    drawn = SPREAD * np.asarray(drawn)
    scale = np.maximum(own, [usual(list(some)) for some in drawn.T])
    found = [100 * np.mean(theirs > 2 * one) for one in (own, scale)], [100 * np.mean(3 * theirs < 2 * one) for one in (own, scale)]
    assert found[0] == pytest.approx(wrong, rel=0.07, abs=0.08) and found[1] == pytest.approx(right, rel=0.03, abs=0.6)
    page = (Path(__file__).resolve().parents[2] / "docs" / "judge-correctness.md").read_text()
    row = next(line for line in page.splitlines() if line.startswith(f"| {freedom} "))
    numbers = [float(one.rstrip("%,|")) for one in row.split() if one.rstrip(",|").endswith("%")]
    assert numbers == [*wrong, *right]


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

    assert drawn(4, 9.0, 1.0, 9.0) == (True, DRAWS)
    assert drawn(4, 1.0, 2.0) == (False, DRAWS)
    assert drawn(4) == (False, ALIKE_DRAWS), "they are alike"
    assert drawn(30, 1.0, 3.0) == (False, LEAST_DRAWS), "far beyond"
    assert drawn(4, math.inf, math.nan, 9e3, 9.0, 1.0, 9.0) == (True, DRAWS), "what is ill-conditioned is no draw"
    assert drawn(30, *[9e3] * DRAWS) == (False, DRAWS)


def test_smaller_draws_take_nothing_away():
    rng = np.random.default_rng(5)
    expected = Expected([erring(rng, TF32)], [leaf(EXACT, "float64")])
    (norm, _), = distances(expected.reference, expected)
    for factor, right in ((1.9, True), (2.5, False)):
        candidate = leaf((EXACT + factor * (expected.reference[0].values.reshape(EXACT.shape) - EXACT)).astype(np.float32))
        drawn = replace(expected, draws=Draws(lambda _: [(norm / 5, norm / 5)]))
        error = check_round([candidate], drawn, round_number=0, level="equal")[0][0]
        assert error.passed is right and "draws" not in error.note


def test_where_nothing_errs_a_candidate_that_does_is_wrong():
    numbers, zeros = np.arange(1000), np.zeros(100)
    for values, dtype, off in ((numbers, "int64", 1), (zeros, "float32", 2e-7)):
        got = values.copy()
        got[7] += off
        expected = Expected([leaf(values, dtype)], [leaf(values, dtype)], draws=Draws(lambda _: [(0.0, 0.0)]))
        assert not check_round([leaf(got, dtype)], expected, round_number=0, level="equal")[0][0].passed


def test_an_output_that_the_reference_computes_in_float32_gets_no_draws():
    rng = np.random.default_rng(5)
    expected = Expected([erring(rng, 1e-7)], [leaf(EXACT, "float64")], draws=Draws(never))
    assert not check_round([erring(rng, TF32)], expected, round_number=0, level="equal")[0][0].passed


def on_other_inputs(candidate, expected, level="equal"):
    return check_elsewhere(0, [candidate], expected, round_number=9, level=level, kind="large")[0]


def test_on_other_inputs_it_is_drawn_too_and_only_where_it_can_decide():
    rng = np.random.default_rng(5)
    expected = Expected([erring(rng, TF32)], [leaf(EXACT, "float64")], yardstick=[[erring(rng, 2 * TF32)]],
                        perturbed=[[leaf(EXACT, "float64")]])
    (norm, largest), = distances(expected.reference, expected)
    candidate = leaf((EXACT + 12 * (expected.reference[0].values.reshape(EXACT.shape) - EXACT)).astype(np.float32))
    assert not on_other_inputs(candidate, expected).passed
    assert on_other_inputs(candidate, replace(expected, draws=Draws(lambda _: [(3 * norm, 3 * largest)]))).passed
    assert not on_other_inputs(erring(rng, 60 * TF32), replace(expected, draws=Draws(never)), "bf16").passed
    alone = replace(expected, oracle=expected.reference, oracle_is_reference=True, draws=Draws(never))
    assert not on_other_inputs(candidate, alone).passed


def test_errors_on_other_inputs_are_taken_where_they_are_compared():
    moved, run = EXACT.copy(), EXACT * (1 + 1e-4)
    moved[3, 3], run[3, 3] = np.nan, 5.0
    expected = Expected([leaf(EXACT.astype(np.float32))], [leaf(EXACT, "float64")], perturbed=[[leaf(moved, "float64")]])
    (norm, largest), = distances([leaf(run)], expected)
    assert norm == pytest.approx(1e-4, rel=0.01) and largest < 1e-3


def test_every_draw_has_its_own_seed_and_takes_time_that_is_known():
    asked = []

    def run(op, sample_seed, sampling, **fields):
        asked.append((op, fields["noise_seed"], fields["round"]))
        time.sleep(0.01)
        shape = (2,) if len(asked) > 3 else EXACT.shape
        return SimpleNamespace(applicable=True), [leaf(np.ones(shape))]

    expectations = Expectations(SimpleNamespace(run=run), Seeds(1), 3, training=False)
    expected = Expected([leaf(EXACT)], [leaf(EXACT)])
    assert len(list(expectations._draws(2, 5, [], OWN_ROUNDS, expected))) == 3, "one of another shape is none"
    assert {op for op, _, _ in asked} == {"rounded"} and {number for *_, number in asked} == {2}
    assert len({seed for _, seed, _ in asked}) == 4 and 0.04 <= expectations.drawing_s < 5


def test_the_time_of_draws_leaves_no_fewer_rounds_on_other_inputs():
    expectations = SimpleNamespace(drawing_s=0.0)
    budget = Budget([0.1, 0.1], Deadline(None), lambda: Rounds._clock(SimpleNamespace(expectations=expectations)))
    expectations.drawing_s, budget.start = 1000.0, budget.start - 1000.0  # a thousand seconds passed, all of them of draws
    assert budget.allows()
    expectations.drawing_s = 0.0
    assert not budget.allows()


def test_nothing_is_drawn_where_it_can_not_decide():
    rng = np.random.default_rng(5)
    expected = Expected([erring(rng, TF32)], [leaf(EXACT, "float64")], draws=Draws(never), yardstick=[[erring(rng, 2 * TF32)]])
    assert not check_round([erring(rng, 40 * TF32)], expected, round_number=0, level="bf16")[0][0].passed
    holed = leaf(np.where(np.arange(CLASSES) == 3, np.inf, EXACT), "float64")  # the reference is finite where the oracle is not
    assert not check_round([erring(rng, 40 * TF32)], replace(expected, oracle=[holed]), round_number=0, level="equal")[0][0].passed
    alone = replace(expected, oracle=expected.reference, oracle_is_reference=True)
    assert not check_round([erring(rng, 40 * TF32)], alone, round_number=0, level="equal")[0][0].passed


def test_some_leaves_keep_their_draws():
    expected = Expected([leaf(EXACT), leaf(EXACT)], [leaf(EXACT), leaf(EXACT)], draws=Draws(lambda _: [(1.0, 2.0), (3.0, 4.0)]))
    assert next(iter(expected.only([1]).draws)) == [(3.0, 4.0)] and expected.only([0]).reference == [expected.reference[0]]


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
    bits = [0x7F800000, -0x00800000, 0x7F800001, 0x7FC01FFF, 0]  # both infinities, two NaN with low bits, 0
    weight = torch.tensor(bits, dtype=torch.int32).view(torch.float32)
    assert torch.equal(rounded_at_random(weight, 3).view(torch.int32), weight.view(torch.int32))


@pytest.fixture
def emulated(monkeypatch):
    """The CPU has TF32."""
    monkeypatch.setattr(judge_tf32, "need_tf32", lambda _workload: None)


def names_of(model, shape=(2, 1, 8, 8)):
    workload = workload_of(model, lambda: [torch.randn(shape)])
    return judge_tf32.tf32_weights(workload, workload.fresh_inputs(1), 1)


class Layers(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.conv, self.again = torch.nn.Embedding(8, 8), Conv(1, 4, 3, padding=1), Conv(4, 4, 3, padding=1)
        self.plain, self.tied, self.head = torch.nn.Conv2d(4, 4, 3), Conv(4, 4, 1), torch.nn.Linear(4, 2)
        self.table.weight = self.tied.weight

    def forward(self, x):
        x = self.again(self.again(self.conv(x).relu()).relu())
        return self.head(self.plain(self.tied(input=x)).mean((2, 3)))


def test_only_weights_that_are_rounded_are_found(emulated):
    assert names_of(Layers()) == ["conv.weight", "again.weight"]


def test_where_the_flag_is_off_nothing_is_found(emulated, monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    assert names_of(Layers()) == []


def test_a_real_cpu_has_none():
    with pytest.raises(judge_reference.NotApplicable, match="no TF32"):
        names_of(Conv(1, 4, 3))


class Exact(Conv):
    """Another kernel without tensor cores: float32's own rounding, of a wider sum."""

    def forward(self, input):
        return super(Conv, self).forward(input) if not torch.backends.cudnn.allow_tf32 else \
            self._conv_forward(input.double(), self.weight.double(), self.bias.double()).float()


class InPlace(torch.nn.Linear):
    def forward(self, input):
        return super().forward(input.mul_(0.5))


class Dropping(Conv):
    def forward(self, input):
        return super().forward(torch.nn.functional.dropout(input, 0.5))


class Hooked(torch.nn.Module):
    """A user's hook puts the activation behind a layer."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer
        self.layer.register_forward_hook(lambda _module, _args, output: torch.nn.functional.gelu(output))

    def forward(self, x):
        return self.layer(x)


@pytest.mark.parametrize(("make", "found"), [
    (lambda: Exact(1, 4, 3), []), (lambda: torch.nn.Sequential(InPlace(8, 8)), []), (lambda: Dropping(1, 4, 3), []),
    (lambda: Hooked(torch.nn.Linear(8, 8)), []), (lambda: Hooked(Conv(1, 4, 3)), ["layer.weight"])])
def test_what_differs_for_another_reason_is_not_taken_for_tf32(make, found, emulated):
    assert names_of(make()) == found


class Counting(torch.nn.Module):
    """Its state moves with each call, by far more than a rounding."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = Conv(1, 4, 3), torch.nn.BatchNorm2d(4, momentum=0.5)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return self.norm(self.conv(x)).mean((2, 3)) + self.calls + self.norm.running_mean


def test_every_draw_starts_from_the_models_own_state(emulated):
    torch.manual_seed(0)
    workload = workload_of(Counting().train(), lambda: [torch.randn(2, 1, 8, 8)])
    inputs = workload.fresh_inputs(1)
    names = judge_tf32.tf32_weights(workload, inputs, 1)
    draws = [judge_tf32.rounded_run(workload, inputs, 1, [], names, draw)[0][1] for draw in range(3)]
    wanted = copy.deepcopy(workload.model)(*inputs[0])
    assert names == ["conv.weight"] and not torch.equal(draws[0], draws[1])
    assert all(torch.allclose(draw, wanted, atol=2e-3) for draw in draws) and workload.model.calls == 0


def test_every_weight_of_a_draw_is_rounded_by_itself(emulated, monkeypatch):
    seeds = []
    monkeypatch.setattr(judge_tf32, "rounded_at_random", lambda weight, seed: seeds.append(seed) or weight)
    workload = workload_of(torch.nn.Sequential(Conv(1, 4, 3), Conv(4, 4, 3)), lambda: [torch.randn(2, 1, 8, 8)])
    judge_tf32.rounded_run(workload, workload.fresh_inputs(1), 1, [], ["0.weight", "1.weight"], 7)
    assert len(set(seeds)) == 2


@pytest.mark.filterwarnings("ignore:.*weight_norm.*deprecated:FutureWarning")
@pytest.mark.parametrize("wrap", [torch.nn.utils.weight_norm, torch.nn.utils.spectral_norm, torch.nn.utils.parametrizations.weight_norm])
def test_weights_that_others_are_computed_from_are_not_found(wrap, emulated):
    with torch.no_grad():
        layer = wrap(Conv(1, 4, 3)).requires_grad_(False)
        layer(torch.randn(2, 1, 8, 8))
    assert names_of(torch.nn.Sequential(layer)) == []


def test_layers_are_looked_at_once_and_on_the_generators_inputs(emulated, tmp_path, monkeypatch):
    workload = workload_of(Conv(1, 4, 3), lambda: [torch.randn(2, 1, 8, 8)])
    seen, look = [], judge_tf32.tf32_weights
    monkeypatch.setattr(judge_tf32, "tf32_weights", lambda workload, inputs, seed: seen.append(inputs) or look(workload, inputs, seed))
    worker = judge_worker.Worker("reference")
    worker.workload = workload
    worker.program, worker.rounds = SimpleNamespace(restore=lambda _: None), {0: workload.fresh_inputs(1), 5: workload.fresh_inputs(2)}
    for draw in range(2):
        message = {"round": 5, "seed": 1, "written": [], "noise_seed": draw, "file": str(tmp_path / f"{draw}.tensors"), "sample_seed": 1,
                   "limit_elements": 1000, "sample_elements": 1000}
        assert worker.op_rounded(message) == {"applicable": True}, message
    assert len(seen) == 1 and seen[0] is worker.rounds[0] and worker.tf32_weights == ["weight"]


class Selfish(Conv):
    def __deepcopy__(self, _memo):
        return self


def test_the_models_own_weights_are_never_rounded(emulated):
    model = torch.nn.Sequential(Selfish(1, 4, 3))
    before = model[0].weight.detach().clone()
    workload = workload_of(model, lambda: [torch.randn(2, 1, 8, 8)])
    for call in (lambda: names_of(model), lambda: judge_tf32.rounded_run(workload, workload.fresh_inputs(1), 1, [], ["0.weight"], 1)):
        with pytest.raises(judge_reference.NotApplicable, match="shares its weights"):
            call()
    assert torch.equal(model[0].weight, before)


class Elsewhere(torch.nn.Parameter):
    def untyped_storage(self):
        raise TypeError("no storage")


def test_where_it_is_not_known_whose_the_weights_are_there_is_no_draw(emulated):
    model = Conv(1, 4, 3)
    model.weight = Elsewhere(model.weight.data)
    with pytest.raises(judge_reference.NotApplicable, match="TypeError"):
        names_of(model)


def test_without_memory_for_it_there_is_no_draw(emulated, monkeypatch):
    def full(*_):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(judge_tf32, "rounded_at_random", full)
    workload = workload_of(Conv(1, 4, 3), lambda: [torch.randn(2, 1, 8, 8)])
    with pytest.raises(judge_reference.NotApplicable, match="OutOfMemoryError"):
        judge_tf32.rounded_run(workload, workload.fresh_inputs(1), 1, [], ["weight"], 1)


def test_recurrent_layers_give_their_sequence_and_state(emulated):
    class Packed(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = torch.nn.LSTM(4, 4, batch_first=True)

        def forward(self, x):
            packed, _ = self.lstm(torch.nn.utils.rnn.pack_padded_sequence(x, [3, 2], batch_first=True))
            return self.lstm(x)[0].sum() + packed.data.sum()

    assert names_of(Packed(), (2, 3, 4)) == []


def pairs(loss, count):
    """A workload and its folded candidate, with one draw of the weights after another."""
    for seed in range(count):
        torch.manual_seed(seed)
        model = Pooled(loss).eval().requires_grad_(False)
        yield seed, workload_of(model, lambda: [torch.randn(2, 3, 12, 12)]), folded(copy.deepcopy(model))


@pytest.mark.parametrize("loss", [False, True])
def test_a_folded_batch_norm_is_right_with_any_weights(loss, emulated):
    plain_wrong = drawn_wrong = 0
    for seed, workload, candidate in pairs(loss, 60):
        without, drawn = own_round(workload, candidate, seed)
        plain_wrong, drawn_wrong = plain_wrong + (not without[0].passed), drawn_wrong + (not drawn[0].passed)
    assert plain_wrong >= 3 and drawn_wrong <= 1


def test_a_loss_is_right_on_other_distributions_too(emulated):
    wrong = 0
    for seed, workload, candidate in pairs(True, 30):
        for kind in ("large", "mixed", "shifted"):
            found = elsewhere(workload, candidate, kind, seed)
            wrong += any(not error.passed for error, compared in found or () if compared)
    assert wrong <= 2


def test_on_the_cpu_nothing_is_drawn():
    torch.manual_seed(0)
    model = torch.nn.Conv2d(3, 4, 3)

    def candidate(x):
        return model(x) * (1 + 1e-5)

    without, with_draws = own_round(workload_of(model, lambda: [torch.randn(2, 3, 8, 8)]), candidate, 1)
    assert without == with_draws and not with_draws[0].passed

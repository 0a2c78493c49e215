"""Other input distributions: honest programs are right on all of them, programs that rely on the generator's are not."""

import secrets

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import honest_programs
from judge_in_process import elsewhere, leaves_of, workload_of
from kernelwright.judge.correctness import Expected, check_round
from kernelwright.judge.distributions import WORDS, Budget, left_out, plan
from kernelwright.judge.options import Deadline
from kernelwright.judge.replies import Surveyed, SurveyedKind
from kernelwright.probe import judge_reference, tree
from kernelwright.probe.judge_distributions import KINDS, perturbed, span, transformed
from kernelwright.probe.judge_program import Program
from kernelwright.probe.judge_survey import Survey, _Operators
from property_examples import examples

SEEDS = range(3)


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # two test processes with two threads each wait for each other
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("name", honest_programs.ALL)
def test_an_honest_program_is_right_on_every_distribution(name):
    torch.manual_seed(1)
    honest = honest_programs.ALL[name]()
    workload = workload_of(honest.model, honest.inputs, training=honest.training)
    compared = set()
    for level, candidates in (("equal", honest.candidates), ("bf16", honest.declared)):
        for kind in KINDS:
            for what, candidate in candidates.items():
                for seed, free in ((5, True), (982, False)):
                    for error, ok in elsewhere(workload, candidate, kind, seed, level, free) or ():
                        assert error.passed, (what, kind, seed, error.note)
                        compared.update([kind] if ok else [])
    assert compared >= {"small", "large", "shifted", "mixed"}, compared


def sampled_sniff(exact, fast):
    """Looks at a few values, and takes the short way when they look like a normal distribution's."""
    def call(x):
        few = x.reshape(-1)[:64]
        return fast(x) if few.abs().max() < 6 and 0.5 < few.std() < 2 and few.mean().abs() < 0.7 else exact(x)

    return call


def softmax(x):
    return torch.softmax(x, -1)


def unguarded(x):
    powers = torch.exp(x)
    return powers / powers.sum(-1, keepdim=True)


def bounded(x):
    return x.clamp(-9, 9).tanh().sum(-1)


CHEATS = {
    "no_max_subtracted": (softmax, lambda: [torch.randn(64, 384)], unguarded),
    "sniffs_by_a_sample": (softmax, lambda: [torch.randn(64, 384)], sampled_sniff(softmax, unguarded)),
    "no_clamp": (lambda x: x.clamp(-9, 9).square(), lambda: [torch.randn(64, 384)], torch.square),
    "relu_of_uniform": (torch.relu, lambda: [torch.rand(64, 256)], torch.clone),
    "series_of_sine": (lambda x: torch.sin(x * 0.01), lambda: [torch.randn(32, 64)], lambda x: x * 0.01 - (x * 0.01) ** 3 / 6),
    "rows_never_equal": (lambda x: x / (x.std(-1, keepdim=True) + 1e-3), lambda: [torch.randn(64, 128)],
                         lambda x: x / (x.std(-1, keepdim=True).clamp(min=0.2) + 1e-3)),
    "no_mean_subtracted": (lambda x: x - 1e-8 * x.mean(), lambda: [torch.randn(64, 128)], lambda x: x * (x.abs().max() < 7)),
}


@pytest.mark.parametrize("name", CHEATS)
def test_a_program_that_relies_on_the_generators_distribution_is_wrong_on_another(name):
    model, inputs, cheat = CHEATS[name]
    workload = workload_of(model, inputs)
    fresh = workload.fresh_inputs(3)
    found, _ = Program(workload, model).call(fresh, 3)
    got, _ = Program(workload, cheat).call(fresh, 3)
    oracle = leaves_of(judge_reference.oracle(workload, fresh, 3, found, []))
    (error,), _ = check_round(leaves_of(got), Expected(leaves_of(found), oracle), round_number=0, level="equal")
    assert error.passed, error.note  # on the generator's own inputs nothing is to be seen
    caught = {seed: [kind for kind in KINDS if any(not error.passed for error, _ in elsewhere(workload, cheat, kind, seed) or ())]
              for seed in SEEDS}
    assert all(caught.values()), caught


def leaf_of(kind, rows, columns, seed):
    generator = torch.Generator().manual_seed(seed)
    if kind == "mask":
        return (torch.rand(rows, columns, generator=generator) < 0.5).float()
    if kind == "additive_mask":
        return torch.where(torch.rand(rows, columns, generator=generator) < 0.5, 0.0, -torch.inf)
    if kind == "probabilities":
        return torch.softmax(torch.randn(rows, columns, generator=generator), -1)
    if kind == "integers":
        return torch.randint(0, 9, (rows, columns), generator=generator)
    if kind == "uniform":
        return torch.rand(rows, columns, generator=generator)
    if kind == "positive":
        return torch.rand(rows, columns, generator=generator) * 40
    return torch.randn(rows, columns, generator=generator)


SIZES = {"rows": st.integers(2, 9), "columns": st.integers(4, 40), "seed": st.integers(0, 2**48 - 1)}
CHANGING = st.sampled_from(KINDS)


@examples(40)
@given(kind=CHANGING, free=st.booleans(), fixed=st.sampled_from(["mask", "additive_mask", "probabilities", "integers"]), **SIZES)
def test_masks_probabilities_and_integers_stay_as_they_are(kind, free, fixed, rows, columns, seed):
    leaf = leaf_of(fixed, rows, columns, seed)
    inputs = ((leaf, torch.randn(rows, columns), 3, "word"), {})
    changed, done = transformed(inputs, kind, seed, free)
    assert changed[0][0] is leaf and changed[0][2:] == (3, "word")
    assert perturbed(inputs, 0.0, seed, None)[0][0] is leaf
    assert set(done) <= {"0.1"}


@examples(40)
@given(kind=CHANGING, free=st.booleans(), dtype=st.sampled_from([torch.float32, torch.float64, torch.bfloat16, torch.float16]),
       transposed=st.booleans(), **SIZES)
def test_a_changed_tensor_keeps_its_form_and_follows_the_seed(kind, free, dtype, transposed, rows, columns, seed):
    leaf = torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed)).to(dtype)
    leaf = (leaf.t() if transposed else leaf).requires_grad_()
    before = leaf.detach().clone()
    (changed,), _ = transformed(((leaf,), {}), kind, seed, free)[0]
    (again,), _ = transformed(((leaf,), {}), kind, seed, free)[0]
    assert (changed.shape, changed.dtype, changed.stride()) == (leaf.shape, leaf.dtype, leaf.stride())
    assert changed.requires_grad and changed.is_leaf and torch.equal(leaf, before)
    assert changed.detach().numpy(force=True).tobytes() == again.detach().numpy(force=True).tobytes() if dtype != torch.bfloat16 else True
    if kind != "nonfinite":
        assert torch.isfinite(changed).all()
    if span(leaf) is not None and not (kind == "constant_rows" and leaf.shape[-1] < 2):
        assert not torch.equal(changed, leaf) or kind in ("constant_rows", "special")


@examples(50)
@given(kind=CHANGING, leaf_kind=st.sampled_from(["uniform", "positive"]), **SIZES)
def test_values_kept_in_the_generators_range_stay_there(kind, leaf_kind, rows, columns, seed):
    leaf = leaf_of(leaf_kind, rows, columns, seed)
    changed = transformed(((leaf,), {}), kind, seed, False)[0][0][0]
    finite = changed[torch.isfinite(changed)]
    assert (finite >= 0).all() and (leaf_kind == "positive" or (finite <= 1).all())
    assert kind == "nonfinite" or finite.numel() == leaf.numel()


@examples(40)
@given(leaf_kind=st.sampled_from(["uniform", "positive", "normal"]), **SIZES)
def test_perturbed_inputs_are_a_few_roundings_away_and_within_their_range(leaf_kind, rows, columns, seed):
    leaf = leaf_of(leaf_kind, rows, columns, seed)
    (moved,), _ = perturbed(((leaf,), {}), 0.0, seed, torch.float64)
    rms = leaf.double().square().mean().sqrt()
    assert ((moved - leaf).abs() <= 4 * torch.finfo(torch.float32).eps * (leaf.double().abs() + rms) * 1.001).all()
    assert leaf.min() <= moved.min() and moved.max() <= leaf.max()
    assert span(leaf) is None or not torch.equal(moved, leaf.double())


def test_a_tensor_given_twice_stays_one():
    x = torch.randn(8, 8)
    (one, two), _ = transformed(((x, x), {}), "large", 4, True)[0]
    assert one is two and not torch.equal(one, x)
    assert len(tree.tensors((one, two))) == 1


def survey_of(model, inputs, **changes):
    return Survey(workload_of(model, inputs, **changes), {}, 11).told(4.0, 2.0)


def test_the_survey_says_where_the_reference_itself_fails():
    def picky(x):
        if x.abs().max() > 100:
            raise ValueError("too large for this table")
        return x * 2

    found = {item["kind"]: item for item in survey_of(picky, lambda: [torch.randn(16, 16)])["distributions"]}
    assert found["large"]["finite"] == 0 and "too large for this table" in found["large"]["reason"]
    assert found["small"]["finite"] == found["shifted"]["finite"] == 1 and found["small"]["free"]
    told = Surveyed(applicable=True, distributions=[SurveyedKind(**item) for item in found.values()])
    assert "large" not in [kind.kind for kind in plan(told, 1)] and "inputs scaled up" in left_out(told)


def test_values_that_must_stay_between_0_and_1_are_kept_there():
    loss = torch.nn.functional.binary_cross_entropy
    found = {item["kind"]: item for item in survey_of(loss, lambda: [torch.rand(16, 16), torch.rand(16, 16)])["distributions"]}
    assert found["large"] == {"kind": "large", "free": False, "finite": 1.0, "reason": found["large"]["reason"]}
    free = {item["kind"]: item["free"] for item in survey_of(torch.relu, lambda: [torch.rand(16, 16)])["distributions"]}
    assert free["large"] and free["shifted"]


@pytest.mark.parametrize(("function", "hazardous"), [
    (lambda x: torch.nn.functional.binary_cross_entropy(x, x), True), (lambda x: torch.bernoulli(x), True),
    (lambda x: torch.arange(9.0)[(x * 8).long()], True), (lambda x: x.topk(3).values.relu() @ torch.ones(3), False),
    (lambda x: x.gather(1, x.argsort(1)), False), (lambda x: (x * 8).long().float(), False)])
def test_operators_that_could_cost_a_gpu_process_its_device_are_seen(function, hazardous):
    """The survey asks only on a GPU; the operators have the same names here."""
    with _Operators() as watch:
        function(torch.rand(8, 8))
    assert watch.hazardous is hazardous


def test_the_order_of_the_distributions_follows_the_secret_seed():
    told = Surveyed(applicable=True, distributions=[SurveyedKind(kind=kind, free=True, finite=1.0) for kind in KINDS])
    orders = {tuple(kind.kind for kind in plan(told, seed)) for seed in range(40)}
    assert len(orders) > 20 and all(sorted(order) == sorted(WORDS) for order in orders)


def test_slow_workloads_get_fewer_distributions_and_a_note():
    quick, slow = Budget([0.5, 0.1, 0.1], Deadline(None)), Budget([9.0, 9.0, 9.0], Deadline(None))
    assert quick.allows() and quick.note(7, 7, 0.01) is None
    assert slow.allows()  # one
    slow.start -= 9.0
    assert not slow.allows() and "one call takes 2.5 s" in slow.note(1, 7, 2.5)


def test_without_time_before_the_deadline_there_are_none():
    import time

    assert not Budget([0.5, 0.4, 0.4], Deadline(time.monotonic() + 2)).allows()


def test_what_the_survey_sees_of_dependence():
    class Deaf(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.unused = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)

        def forward(self, x, noise, mask, count):
            return self.used(x).masked_fill(mask, 0) + 0 * self.unused(noise) + 1e-12 * count[:, None]

    torch.manual_seed(0)
    model = Deaf().eval()
    weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    told = survey_of(model, lambda: [torch.randn(9, 8), torch.randn(9, 8), torch.rand(9, 8) < 0.5, torch.randint(0, 9, (9,))])
    changes = {(item["what"], item["name"]): item["change"] for item in told["dependence"]}
    assert min(changes["input", "0.0"], changes["input", "0.2"], changes["weight", "used.bias"], changes["all inputs", ""]) > 1e-2
    assert max(changes["input", "0.1"], changes["input", "0.3"], changes["weight", "unused.weight"]) < 1e-8
    assert told["deterministic"] is True and told["spread"] > 0.1
    assert all(torch.equal(tensor, weights[name]) for name, tensor in model.state_dict().items())


def test_a_program_with_a_memory_is_seen_not_to_repeat():
    calls = []

    def counts(x):
        calls.append(1)
        return x + len(calls)

    assert survey_of(counts, lambda: [torch.randn(4, 4)])["deterministic"] is False
    assert np.isfinite(survey_of(torch.relu, lambda: [torch.randn(4, 4)])["call_s"])


@pytest.mark.parametrize("where", ["attribute", "buffer", "back and forth", "parameter", "nowhere"])
def test_state_beside_what_torch_holds_is_told_from_that_and_from_noise(where):
    class Counts(torch.nn.Module):
        count = 0

        def __init__(self):
            super().__init__()
            self.register_buffer("calls", torch.zeros(()))
            self.weight = torch.nn.Parameter(torch.ones(()), requires_grad=False)

        def forward(self, x):
            self.count += where == "attribute"
            self.calls += where == "buffer"
            self.weight += where == "parameter"
            if where == "back and forth":
                self.calls.copy_(1 - self.calls)
            return x + self.count + self.calls + self.weight + (secrets.randbits(20) if where == "nowhere" else 0)

    told = survey_of(Counts().eval(), lambda: [torch.randn(4, 4)])
    assert told["deterministic"] is False and told["remembers"] is (where == "attribute")


def test_a_program_that_repeats_remembers_nothing():
    assert survey_of(torch.nn.Tanh().eval(), lambda: [torch.randn(4, 4)])["remembers"] is False

"""What the judge sees beside the generator's rounds, for real on the CPU: two processes, small workloads made here."""

import math
import sys

import pytest
import torch

from kernelwright.judge import JudgeOptions, ReferenceSession, distributions, judge, steady
from kernelwright.judge.options import ReferenceFailed
from kernelwright.model.workload import WorkloadRef
from warm_start import warm_start

WORKLOADS = {
    "softmax": """
import torch
def get_model_and_input():
    return torch.nn.Softmax(-1).eval(), torch.randn(48, 256)
""",
    "tables": """
import torch
class Tables(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight, self.unused = (torch.nn.Parameter(torch.randn(64, 64)) for _ in range(2))
    def forward(self, x, noise):
        return (x @ self.weight + 0 * (noise @ self.unused)).mean(-1, keepdim=True).repeat(1, 64)
def get_model_and_input():
    return Tables().eval(), (torch.randn(96, 64), torch.randn(96, 64))
""",
    "copied": """
import torch
class Copied(torch.nn.Module):
    def forward(self, x):
        return x * 1.0
def get_model_and_input():
    return Copied().eval(), torch.randn(40, 30)
""",
    "dropped": """
import random, torch
class Cancels(torch.nn.Module):
    def forward(self, x):
        big = x[0, 0].abs() * 1e6
        return (x + big) - big
def get_model_and_input():
    x = torch.randn(64, 64)
    x[0, 0] = 1.0 if random.random() < CHANCE else 0.0
    return Cancels().eval(), x
""",
    "ends_empty": """
import torch
class EndsEmpty(torch.nn.Module):
    def forward(self, x):
        y = torch.tanh(x)
        return y, y[:0].reshape(-1)
def get_model_and_input():
    return EndsEmpty().eval(), torch.randn(3, 5)
""",
    "gives_an_input_back": """
import torch
class GivesBack(torch.nn.Module):
    def forward(self, x):
        return torch.tanh(x), x
def get_model_and_input():
    return GivesBack().eval(), torch.randn(48, 256)
""",
    "remembers": """
import torch
class Remembers(torch.nn.Module):
    mean = 0.0
    def forward(self, x):
        self.mean = 0.5 * self.mean + SHARE * (2 + x).mean()
        return torch.tanh(x) + self.mean
def get_model_and_input():
    return Remembers().eval(), torch.randn(48, 256)
""",
    "grows": """
import torch
class Grows(torch.nn.Module):
    calls = ()
    def forward(self, x):
        self.calls = (*self.calls, x[0])
        return torch.tanh(torch.stack(self.calls))
def get_model_and_input():
    return Grows().eval(), torch.randn(48, 256)
""",
    "noisy": """
import secrets, torch
class Noisy(torch.nn.Module):
    def forward(self, x):
        return (torch.tanh(x) * (1 + 1.2e-7 * secrets.randbelow(2))).sum(-1, keepdim=True).repeat(1, 9)
def get_model_and_input():
    return Noisy().eval(), torch.rand(48, 256)
""",
    "draws_for_nothing": """
import random, numpy, torch
class Draws(torch.nn.Module):
    def forward(self, x):
        numpy.random.rand()
        return x if random.random() < 0 else torch.tanh(x)
def get_model_and_input():
    return Draws().eval(), torch.randn(48, 256)
""",
    "shares": """
import torch
class Cache(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("both", torch.zeros(2, 256))
        self.register_buffer("first", self.both[0])
        self.caches = [self.both]
    def forward(self, x):
        self.caches[0].mul_(0.5).add_(x[0])
        return torch.tanh(x) + self.first
def get_model_and_input():
    return Cache().eval(), torch.randn(48, 256)
""",
    "turns": """
import torch
class Turns(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("phase", torch.zeros(()))
    def forward(self, x):
        self.phase.copy_(1 - self.phase)
        return torch.tanh(x) + self.phase
def get_model_and_input():
    return Turns().eval(), torch.randn(48, 256)
""",
    "counts": """
import torch
calls = []
def counts(x):
    calls.append(1)
    return torch.tanh(x) * len(calls)
def get_model_and_input():
    return counts, torch.randn(48, 256)
""",
    "sparse": """
import torch
class Sparse(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("rows", torch.eye(48).to_sparse() if "WHERE" == "buffer" else None)
    def forward(self, x):
        dense = x.to_dense() if self.rows is None else self.rows @ x
        return dense.to_sparse() if "WHERE" == "output" else dense
def get_model_and_input():
    x = torch.randn(48, 256)
    nested = torch.nested.nested_tensor(list(x)) if "WHERE" == "nested" else None
    return Sparse().eval(), x.to_sparse_csr() if "WHERE" == "input" else x if nested is None else nested
""",
    "averages": """
import torch
class Averages(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(()))
    def forward(self, x):
        self.mean.mul_(0.5).add_((2 + x).mean())
        return torch.tanh(x) + self.mean, self.mean
def get_model_and_input():
    return Averages().eval(), torch.randn(48, 256)
""",
    "remembers_beside": """
import torch
class Beside(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros((), dtype=torch.long))
        self.register_buffer("mean", torch.zeros(256))
        self.register_buffer("scale", torch.ones(()))
    def forward(self, x):
        self.seen += 1
        self.mean = 0.9 * self.mean + 0.1 * x.mean(0)
        return torch.tanh(x) * self.scale
def get_model_and_input():
    return Beside().eval(), torch.randn(48, 256)
""",
    "beside_compiled": """
import torch
class Inner(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(256))
    def forward(self, x):
        self.seen += x.mean(0)
        return torch.tanh(x)
class Outer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.compile(Inner(), backend="eager")
    def forward(self, x):
        return self.inner(x)
def get_model_and_input():
    return Outer().eval(), torch.randn(48, 256)
""",
    "history": """
import torch
class History(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("past", torch.zeros(0))
    def forward(self, x):
        self.past = torch.cat([self.past, x.mean().reshape(1)])
        return torch.tanh(x)
def get_model_and_input():
    return History().eval(), torch.randn(48, 256)
""",
    "logs": """
import torch
class Logs(torch.nn.Module):
    calls = 0
    def forward(self, x):
        self.calls += 1
        return torch.tanh(x)
def get_model_and_input():
    return Logs().eval(), torch.randn(48, 256)
""",
    "draws": """
import random, numpy, torch
class Draws(torch.nn.Module):
    def forward(self, x):
        return torch.tanh(x) * (1 + random.random() + numpy.random.rand())
def get_model_and_input():
    return Draws().eval(), torch.randn(48, 256)
""",
    "slow_inputs": """
import time, torch
made = 0
def get_model_and_input():
    global made
    made += 1
    time.sleep(40 if made > 7 else 0)  # while the candidate is in its fifth call, on the first of the other inputs
    return torch.nn.Tanh().eval(), torch.randn(48, 256)
""",
    "learns": """
import torch
class Learns(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = torch.nn.Linear(24, 24), torch.nn.BatchNorm1d(24), torch.nn.Linear(24, 1)
    def forward(self, x):
        return torch.tanh(self.last(self.norm(self.first(x)))).square().mean()
def get_model_and_input():
    return Learns().train(), torch.randn(64, 24, requires_grad=True)
""",
}
HEAD = "import torch\ndef optimize(model, inputs):\n"
CANDIDATES = {
    "same": "    return lambda *xs: model(*xs)\n",
    "unguarded": "    return lambda x: torch.exp(x) / torch.exp(x).sum(-1, keepdim=True)\n",
    "sniffs": """
    def call(x):
        if x[0].abs().max() < 6:
            powers = torch.exp(x)
            return powers / powers.sum(-1, keepdim=True)
        return model(x)
    return call
""",
    "raises_when_large": """
    def call(x):
        if x.abs().max() > 50:
            raise ValueError("no kernel for such values")
        return model(x)
    return call
""",
    "a_thousandth_off": """
    def call(x):
        got = model(x)
        return (got[0] * 1.001, *got[1:]) if isinstance(got, tuple) else got * 1.001
    return call
""",
    "own_buffer": """
    out = torch.empty(48, 256)
    def call(x):
        return out.copy_(model(x))
    return call
""",
    "own_buffer_for_the_input": """
    out = torch.empty(48, 256)
    def call(x):
        return model(x)[0], out.copy_(x)
    return call
""",
    "own_buffer_beside_the_input": """
    out = torch.empty(48, 256)
    def call(x):
        return out.copy_(model(x)[0]), x
    return call
""",
    "unwritten_row": """
    def call(x):
        out = torch.empty_like(x)
        out[:-1] = model(x[:-1])
        return out
    return call
""",
    "adds_into_fresh_memory": """
    def call(x):
        out = torch.empty_like(x)
        out += model(x)
        return out
    return call
""",
    "adds_what_malloc_gives": """
    def call(x):
        scratch = torch.empty(1 << 24)  # 64 MiB: mapped anew at each call, all zero
        return model(x) + scratch[-1]  # the start can be what was poisoned
    return call
""",
    "wears_out": """
    calls = 0
    def call(x):
        nonlocal calls
        calls += 1
        return model(x) * (1 + 1e-3 * (calls > 18))
    return call
""",
    "wears_out_at_once": """
    calls = 0
    def call(x):
        nonlocal calls
        calls += 1
        return model(x) * (1 + 1e-3 * (calls > 3))
    return call
""",
    "unsteady": """
    calls = 0
    def call(x):
        nonlocal calls
        calls += 1
        return model(x) * (1 + 1.2e-7 * (calls % 2))
    return call
""",
    "dies_in_the_fifth_call": """
    import os
    calls = 0
    def call(x):
        nonlocal calls
        calls += 1
        return model(x) if calls < 5 else os._exit(3)
    return call
""",
    "transposed": "    return lambda x: torch.softmax(x.t().contiguous(), 0).t()\n",
    "off_in_one_place": """
    def call(x):
        out = model(x)
        out[7, 11] += 0.25
        return out
    return call
""",
    "forgets_noise": "    return lambda x, noise: (x @ model.weight).mean(-1, keepdim=True).repeat(1, 64)\n",
    "expanded": "    return lambda x, noise: (x @ model.weight).mean(-1, keepdim=True).expand(-1, 64)\n",
    "hands_back": "    return lambda x: x\n",
    "keeps_state_to_itself": "    import copy\n    return lambda x, own=copy.deepcopy(model): own(x)\n",
    "its_first_output": """
    first = []
    def call(x):
        first.append(model(x))
        return first[0].clone()
    return call
""",
    "no_state": "    import torch\n    return lambda x: torch.tanh(x)\n",
    "a_copy_in_its_place": "    import copy\n    return copy.deepcopy(model)\n",
    "state_a_thousandth_off": """
    def call(x):
        out = model(x)
        model.mean *= 1.001
        return out
    return call
""",
    "keeps_the_input_s_gradient": "    return lambda x: model(x.detach().requires_grad_())\n",
}


@pytest.fixture(scope="module")
def sessions(tmp_path_factory):
    """One live reference for each workload, started when it is first asked for."""
    folder, live = tmp_path_factory.mktemp("workloads"), {}

    def session(name, **changes):
        key = (name, tuple(changes.items()))
        if key not in live:
            path = folder / f"{name}{len(live)}.py"
            text = WORKLOADS[name].replace("CHANCE", str(changes.pop("chance", 1)))
            path.write_text(text.replace("SHARE", str(changes.pop("share", 1))).replace("WHERE", changes.pop("where", "")))
            options = JudgeOptions(device="cpu", python=sys.executable, timing=False, timeout_s=60, **changes)
            live[key] = ReferenceSession(WorkloadRef(path=path, name=name), options).__enter__()
        return live[key]

    with pytest.MonkeyPatch.context() as patch, warm_start():
        patch.setenv("OMP_NUM_THREADS", "1")
        for module, name in ((distributions, "MIN_BUDGET_S"), (distributions, "MAX_BUDGET_S"), (steady, "CHURN_S")):
            patch.setattr(module, name, 20.0)  # a busy machine must not leave out what a test is about
        threads = torch.get_num_threads()
        torch.set_num_threads(1)  # what the forks inherit
        yield session
        torch.set_num_threads(threads)
        for one in live.values():
            one.close()


@pytest.fixture
def verdict_on(sessions, tmp_path):
    def verdict(workload, candidate, *, changes=None, **options):
        session = sessions(workload, **options)
        path = tmp_path / f"{candidate}.py"
        path.write_text(HEAD + CANDIDATES[candidate])
        return judge(session.workload, path, session.options.model_copy(update=changes or {}), session=session)

    return verdict


def test_a_right_program_is_right_on_other_distributions_and_when_called_again(verdict_on):
    verdict = verdict_on("softmax", "same")
    found = verdict.correctness
    assert found.passed and found.rounds == 3 and not found.warnings and not found.dropped_rounds, verdict.reasons
    status = {other.kind: other.status for other in found.distributions}
    assert len(status) == 8 and all(how == "passed" for kind, how in status.items() if kind != "nonfinite"), status
    assert all(other.changed for other in found.distributions) and all(error.passed for error in found.errors if error.distribution)
    assert found.steadiness.repeatable and found.steadiness.reference_repeatable and found.steadiness.calls > 12
    assert verdict.reproducer is None


def test_other_distributions_can_be_left_out(verdict_on):
    verdict = verdict_on("softmax", "unguarded", changes={"distributions": False, "steadiness": False})
    assert verdict.correctness.passed and not verdict.correctness.distributions and verdict.correctness.steadiness is None


@pytest.mark.parametrize("name", ["unguarded", "sniffs"])
def test_a_program_for_the_generators_distribution_alone_is_wrong(name, verdict_on):
    verdict = verdict_on("softmax", name)
    assert verdict.verdict == "WRONG" and verdict.reasons[0].startswith("on "), verdict.reasons
    shown = verdict.reproducer
    assert shown.kind == "value" and shown.distribution in ("large", "spikes", "mixed", "nonfinite") and shown.changed
    assert shown.shape == (48, 256) and len(shown.index) == 2 and shown.wrong_elements >= 1 and shown.compared_elements == 48 * 256
    assert [other.status for other in verdict.correctness.distributions][-1] == "failed"


def test_an_empty_output_at_the_end_is_compared_like_any_other(verdict_on):
    verdict = verdict_on("ends_empty", "same")
    assert verdict.correctness.passed and len(verdict.correctness.distributions) == 8, verdict.reasons


def test_a_failure_is_told_without_waiting_for_inputs_that_nobody_needs_any_more(verdict_on):
    verdict = verdict_on("slow_inputs", "dies_in_the_fifth_call")
    assert verdict.verdict == "FAILED" and "status 3 during its call" in verdict.reasons[0], verdict.reasons
    assert verdict.phases_s["correctness"] < 30.0


def test_a_program_that_raises_where_the_reference_runs_has_failed(verdict_on):
    verdict = verdict_on("softmax", "raises_when_large")
    assert verdict.verdict == "FAILED" and "where the reference does not: ValueError: no kernel" in verdict.reasons[0], verdict.reasons


def test_an_output_that_the_next_call_overwrites_is_wrong(verdict_on):
    verdict = verdict_on("softmax", "own_buffer")
    assert verdict.verdict == "WRONG" and "changes when it is called again" in verdict.reasons[0], verdict.reasons
    assert verdict.reproducer.kind == "structure" and verdict.reproducer.round == 1


def test_an_input_that_is_given_back_may_change_with_the_next_inputs(verdict_on):
    verdict = verdict_on("gives_an_input_back", "same")
    assert verdict.correctness.passed, verdict.reasons


@pytest.mark.parametrize("name", ["own_buffer_for_the_input", "own_buffer_beside_the_input"])
def test_a_buffer_beside_or_in_the_place_of_an_input_that_is_given_back_is_wrong(name, verdict_on):
    verdict = verdict_on("gives_an_input_back", name)
    assert verdict.verdict == "WRONG" and "changes when it is called again" in verdict.reasons[0], verdict.reasons


@pytest.mark.parametrize("name", ["unwritten_row", "adds_into_fresh_memory"])
def test_memory_that_was_never_written_is_no_result(name, verdict_on):
    verdict = verdict_on("softmax", name)
    assert verdict.verdict == "WRONG" and isinstance(verdict.reproducer.expected, float), verdict.reasons
    got = float(verdict.reproducer.got)  # garbage: NaN, malloc's own numbers in a block that was free, or what malloc filled it with
    assert math.isnan(got) or abs(got - verdict.reproducer.expected) > 100 * verdict.reproducer.limit, verdict.reasons


def test_pages_fresh_from_the_system_are_no_result_either(verdict_on):
    verdict = verdict_on("softmax", "adds_what_malloc_gives")
    assert verdict.verdict == "WRONG" and float(verdict.reproducer.got) > 1e38, verdict.reasons


@pytest.mark.parametrize("name", ["wears_out", "wears_out_at_once"])
def test_a_program_that_is_wrong_after_some_calls_is_wrong(name, verdict_on):
    verdict = verdict_on("softmax", name)
    assert verdict.verdict == "WRONG" and "state drifts after" in verdict.reasons[0], verdict.reasons
    assert verdict.reproducer.kind == "state" and verdict.reproducer.round == 0 and verdict.reproducer.limit < 1e-5


def test_a_program_that_is_not_deterministic_gets_a_note_with_the_difference(verdict_on):
    verdict = verdict_on("softmax", "unsteady")
    assert verdict.correctness.passed and not verdict.correctness.steadiness.repeatable, verdict.reasons
    assert 1e-8 < verdict.correctness.steadiness.difference < 1e-6
    assert any("not deterministic: two calls on the same inputs differ by" in reason for reason in verdict.reasons)


def test_another_memory_format_is_a_note(verdict_on):
    verdict = verdict_on("softmax", "transposed")
    assert verdict.correctness.passed and any("strides [1, 48], the reference's [256, 1]" in reason for reason in verdict.reasons)


def test_the_reproducer_names_the_one_element_that_is_off(verdict_on):
    shown = verdict_on("softmax", "off_in_one_place").reproducer
    assert shown.index == (7, 11) and shown.wrong_elements == 1 and shown.round == 0 and shown.distribution == ""
    assert shown.got - shown.expected == pytest.approx(0.25, abs=1e-6) and shown.reference == pytest.approx(shown.expected, rel=1e-5)
    assert shown.error > shown.limit and shown.inputs_seed > 0


def test_inputs_and_weights_that_no_output_depends_on_are_named(verdict_on):
    verdict = verdict_on("tables", "forgets_noise")
    assert verdict.correctness.passed
    words = " ".join(verdict.correctness.warnings)
    assert "input 0.1" in words and "weight unused" in words and "input 0.0" not in words and "weight weight" not in words
    assert all(warning in verdict.reasons for warning in verdict.correctness.warnings)


@pytest.mark.parametrize(("workload", "name", "words"), [("tables", "expanded", "is an expanded view"),
                                                         ("copied", "hands_back", "lies in the memory of input '0.0'")])
def test_an_output_without_memory_of_its_own_is_wrong(workload, name, words, verdict_on):
    verdict = verdict_on(workload, name)
    assert verdict.verdict == "WRONG" and words in verdict.reasons[0], verdict.reasons
    assert verdict_on(workload, "same").correctness.passed


def test_ill_conditioned_rounds_are_dropped_and_drawn_again(verdict_on):
    verdict = verdict_on("dropped", "same", chance=0.4, seed=2)
    found = verdict.correctness
    assert found.passed and 0 < len(found.dropped_rounds) < 3 and found.rounds == 3 + len(found.dropped_rounds), verdict.reasons
    assert any("drawn again" in reason for reason in verdict.reasons)


def test_a_workload_that_is_ill_conditioned_in_every_round_is_no_verdict(verdict_on):
    with pytest.raises(ReferenceFailed, match="above 1%") as error:
        verdict_on("dropped", "same", chance=1)
    assert error.value.code == "ill_conditioned"


@pytest.mark.parametrize(("workload", "share"), [("remembers", 1.0), ("remembers", 0.001), ("grows", 1.0)])
def test_a_workload_with_state_that_torch_does_not_hold_is_no_verdict(workload, share, verdict_on):
    """Were the candidate called WRONG, or the workload ill-conditioned, its author would look in the wrong place."""
    with pytest.raises(ReferenceFailed, match="called again on the same inputs, it gives another output") as error:
        verdict_on(workload, "same", share=share)
    assert error.value.code == "not_repeatable" and "register_buffer" in error.value.fix


@pytest.mark.parametrize(("candidate", "words"), [
    ("keeps_state_to_itself", "output 'buffer seen': error 1"), ("state_a_thousandth_off", "output 'buffer mean': error"),
    ("same", None), ("a_copy_in_its_place", None)])
def test_buffers_that_a_call_changes_are_compared_though_no_output_shows_them(candidate, words, verdict_on):
    """A copy of the model in channels-last layout was FASTER, and the running mean that the model keeps stayed as it was."""
    verdict = verdict_on("remembers_beside", candidate)
    told = {error.path for error in verdict.correctness.errors if error.path.startswith("buffer ")}
    assert told == {"buffer seen", "buffer mean"}, "what no call changes is not compared"
    assert verdict.correctness.passed == (words is None), verdict.reasons
    assert words is None or any(words in reason for reason in verdict.reasons), verdict.reasons


def test_buffers_of_a_part_that_is_compiled_are_compared_too(verdict_on):
    verdict = verdict_on("beside_compiled", "no_state")
    assert verdict.verdict == "WRONG" and "output 'buffer inner.seen': error 1" in verdict.reasons[0], verdict.reasons


def test_a_remembered_output_is_stale_though_buffers_go_on(verdict_on):
    verdict = verdict_on("remembers_beside", "its_first_output")
    assert verdict.verdict == "CHEAT" and "stale or cached result" in verdict.reasons[0], verdict.reasons


def test_a_buffer_that_grows_is_not_compared_and_begins_anew_for_the_next_candidate(verdict_on):
    for _ in range(2):
        verdict = verdict_on("history", "same")
        assert verdict.correctness.passed and {error.path for error in verdict.correctness.errors} == {""}, verdict.reasons


def test_state_of_a_function_is_named_where_nothing_can_be_compared(verdict_on):
    with pytest.raises(ReferenceFailed, match=r"above 1%.* called again on the same inputs, it gives another output, which may be why"):
        verdict_on("counts", "same")


def test_noise_of_some_eps_is_no_state(verdict_on):
    verdicts = [verdict_on("noisy", "same"), verdict_on("noisy", "a_thousandth_off")]
    assert verdicts[0].correctness.passed and verdicts[1].verdict == "WRONG"


@pytest.mark.parametrize(("where", "words"), [("input", "input 0.0 is torch.sparse_csr"), ("buffer", "buffer rows is torch.sparse_coo"),
                                              ("nested", "input 0.0 is nested")])
def test_a_workload_with_sparse_tensors_is_no_verdict(where, words, verdict_on):
    with pytest.raises(ReferenceFailed, match=words) as error:
        verdict_on("sparse", "same", where=where)
    assert error.value.code == "not_dense"


def test_a_sparse_output_is_named(verdict_on):
    verdict = verdict_on("sparse", "same", where="output")
    assert verdict.verdict == "FAILED" and verdict.reasons[0].startswith("output is torch.sparse_coo, and only dense"), verdict.reasons


@pytest.mark.parametrize("workload", ["averages", "shares", "turns"])
def test_state_in_a_buffer_can_be_judged(workload, verdict_on):
    right = verdict_on(workload, "same").correctness
    assert right.passed and not right.dropped_rounds and right.oracle == "float64"
    assert verdict_on(workload, "a_thousandth_off").verdict == "WRONG"


def test_state_that_changes_no_output_is_no_excuse_for_a_candidate(verdict_on):
    assert verdict_on("logs", "same").correctness.passed
    assert verdict_on("logs", "a_thousandth_off").verdict == "WRONG"


def test_random_numbers_of_python_and_numpy_follow_the_judge_s_seed(verdict_on):
    right, wrong = verdict_on("draws", "same"), verdict_on("draws", "a_thousandth_off")
    assert right.correctness.passed and right.correctness.oracle == "float64", right.reasons
    assert wrong.verdict == "WRONG" and any("error 0.001," in reason for reason in wrong.reasons), wrong.reasons


@pytest.mark.parametrize(("workload", "result"), [("draws", "not_applicable"), ("draws_for_nothing", "passed")])
def test_outputs_of_timed_calls_are_checked_where_the_seed_does_not_decide_them(workload, result, verdict_on):
    verdict = verdict_on(workload, "same", changes={"timing": True, "max_timing_s": 0.3, "confirm": False, "conditions": ()})
    assert verdict.correctness.passed and {row.name: row.result for row in verdict.audits}["timed calls"] == result


def test_gradients_of_inputs_are_compared_and_zero_gradients_may_be_noise(verdict_on):
    right, wrong = verdict_on("learns", "same"), verdict_on("learns", "keeps_the_input_s_gradient")
    assert right.correctness.passed, right.reasons
    noise = [error for error in right.correctness.errors if error.path == "grad.first.bias" and not error.distribution]
    assert noise and all("ill-conditioned" in error.note for error in noise)  # zero in exact arithmetic: BatchNorm takes the bias away
    assert "grad input 0.0" in {error.path for error in right.correctness.errors}
    assert wrong.verdict == "WRONG" and "grad input 0.0" in wrong.reasons[0], wrong.reasons

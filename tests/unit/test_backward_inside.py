"""Calls that run a backward pass themselves: recognised, kept under grad mode, and refused where they train."""

import importlib.util
import sys
from pathlib import Path

import pytest
import torch
import torch._dynamo

from kernelwright.model.capture import ProbeResult
from kernelwright.model.errors import WorkloadFailed
from kernelwright.model.workload import TensorSpec, WorkloadRef
from kernelwright.optimize.checks import render_tests
from kernelwright.optimize.generate import render_source, write_source
from kernelwright.optimize.passes import CATALOGUE
from kernelwright.optimize.plan import candidate, first_round
from kernelwright.optimize.recognised import recognised
from kernelwright.probe import loaders, variation
from kernelwright.probe.run import carry_out
from optimizing import FakeStages, a_workload, context, facts, run  # noqa: F401 a_workload: the fixture

FORCES = Path(__file__).resolve().parents[1] / "data" / "dynamic" / "forces.py"


class Trains(torch.nn.Module):
    """One step of training a call."""

    def __init__(self, *, by_hand: bool) -> None:
        super().__init__()
        self.net = torch.nn.Linear(4, 4)
        self.optimizer = None if by_hand else torch.optim.Adam(self.net.parameters())

    def forward(self, x):
        self.net.zero_grad()
        loss = self.net(x).square().mean()
        loss.backward()
        if self.optimizer is not None:
            self.optimizer.step()
        else:
            for weight in self.net.parameters():
                weight.data -= 0.1 * weight.grad
        return loss.detach()


class Accumulates(Trains):
    """Gradients a call, and weights as they were."""

    def forward(self, x):
        loss = self.net(x).square().mean()
        loss.backward()
        return loss.detach()


class Restores(Trains):
    """A step of training that the same call takes back, beside a parameter that nothing uses."""

    def __init__(self) -> None:
        super().__init__(by_hand=True)
        self.unused = torch.nn.Parameter(torch.full((2,), float("nan")))

    def forward(self, x):
        kept = {name: weight.detach().clone() for name, weight in self.net.named_parameters()}
        loss = super().forward(x)
        with torch.no_grad():
            for name, weight in self.net.named_parameters():
                weight.copy_(kept[name])
        return loss


def seen(model: torch.nn.Module, x: torch.Tensor) -> tuple[bool, list[str]]:
    found = variation.watched(loaders.LoadedWorkload(
        path="w.py", form="model", version=None, versions=(), params={}, module=sys, model=model, raw_input=x, args=(x,), kwargs={},
        device="cpu"))
    return found["backward_inside"], found["changing_weights"]


def test_a_call_that_needs_its_callers_gradients_is_seen(tmp_path):
    request = {"action": "describe", "device": "cpu", "out_dir": str(tmp_path), "variation": True, "workload": {"path": str(FORCES)}}
    found = ProbeResult.model_validate(carry_out(request))
    assert found.facts.backward_inside and not found.facts.training and not found.facts.changing_weights and not found.warnings
    own = carry_out({**request, "workload": {"path": str(FORCES), "params": {"own_mode": "True"}}})
    assert own["facts"]["backward_inside"] is False, "it turns gradients on itself, so candidates may run without"


@pytest.mark.parametrize("by_hand", [False, True])
def test_a_call_that_trains_is_told_from_one_that_does_not(by_hand):
    assert seen(Trains(by_hand=by_hand), torch.randn(2, 4)) == (True, ["net.weight", "net.bias"])
    assert seen(Accumulates(by_hand=by_hand), torch.randn(2, 4)) == (True, [])
    assert seen(Restores(), torch.randn(2, 4)) == (True, []), "it gives the same each time"
    assert seen(torch.nn.Linear(4, 4), torch.randn(2, 4)) == (False, [])
    assert torch.is_grad_enabled()


def test_the_weights_that_a_bare_function_trains_are_those_of_the_modules_it_enters():
    net, idle = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()), torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD([*net.parameters(), *idle.parameters()], lr=0.1)

    def step(x):
        optimizer.zero_grad()
        loss = idle(net(x)).square().mean() if idle.training else net(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    assert seen(step, torch.randn(2, 4)) == (True, ["Sequential.0.weight", "Sequential.0.bias", "Linear.weight", "Linear.bias"])
    idle.eval()
    assert seen(step, torch.randn(2, 4)) == (True, ["Sequential.0.weight", "Sequential.0.bias"])
    optimizer.param_groups[0]["lr"] = 0.0
    assert seen(step, torch.randn(2, 4)) == (True, [])


def test_looking_at_weights_is_no_operator_of_the_call(monkeypatch):
    net, noted = torch.nn.Linear(4, 4), []
    monkeypatch.setattr(variation, "growth", lambda operators: noted.append(sum(map(len, operators))))
    for model in (net, lambda x: net(x)):
        monkeypatch.setattr(variation, "LEAST_STEPS", 1)
        seen(model, torch.randn(2, 4))
    assert noted[0] == noted[1] > 0


def test_no_candidate_of_it_runs_without_gradients():
    here = context(backward_inside=True)
    assert not any("no_grad" in item.passes for item in first_round(here, "bf16"))
    assert candidate(["compile_default"], here).passes == ("compile_default",)
    assert "no_grad" in candidate(["compile_default"], context()).passes
    refused = {name: item.refusal(here) for name, item in CATALOGUE.items()}
    assert {refused[name] for name in ("no_grad", "cuda_graph", "fold_conv_bn")} == {"not valid where a call runs a backward pass itself"}
    assert refused["compile_default"] is refused["tf32"] is refused["cudnn_benchmark"] is None
    [words] = recognised(here)
    assert words.startswith("Backward pass inside the call: it needs its caller's gradients")


def test_its_optimized_file_serves_calls_under_grad_mode(tmp_path, monkeypatch):
    torch._dynamo.reset()
    known = facts(backward_inside=True, inputs=(TensorSpec(path="", shape=(32, 3), dtype="float32", device="cpu"),))
    text = render_source(WorkloadRef(path=FORCES, name="forces"), known, [CATALOGUE["compile_default"]], device="cpu",
                         file_name="optimized.py", standalone=True)
    spec = importlib.util.spec_from_file_location("optimized", write_source(tmp_path / "optimized.py", text))
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    made.compile_default.__defaults__ = ("eager",)
    model, places = made.original()
    fast = made.optimize(model, places)
    torch.testing.assert_close(fast(places), model(places))
    assert made.GRAD_MODE == "backward inside" and made.fits([places.requires_grad_()])
    with torch.no_grad():
        assert not made.fits([places])
    monkeypatch.setitem(sys.modules, "optimized", made)
    checks: dict[str, object] = {"__file__": str(tmp_path / "test_optimized.py"), "__name__": "test_optimized"}
    exec(compile(render_tests(("compile_default",), known), "test_optimized.py", "exec"), checks)
    torch.testing.assert_close(checks["called"](fast, places.detach()), [model(places)])


def test_a_workload_that_trains_itself_ends_with_one_line(workload):
    stages = FakeStages({}, backward_inside=True, changing_weights=("a", "b", "c", "d"))
    with pytest.raises(WorkloadFailed, match=r"it changes a, b, c and 1 more\), so no two calls give the same") as caught:
        run(workload, stages)
    assert (caught.value.code, caught.value.exit_code) == ("weights_vary", 4) and not stages.judged
    [report] = workload.path.parent.rglob("report.md")
    assert "Training inside the call: it changes a, b, c and 1 more itself." in report.read_text()
    assert "torch.enable_grad()" not in report.read_text(), "that would not mend it"

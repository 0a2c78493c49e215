"""A workload that brings torch.compile, through the probe and the pipeline: which passes apply to it, and what a written candidate runs."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from kernelwright.model.profile import Profile
from kernelwright.model.workload import WorkloadRef
from kernelwright.optimize.generate import render_source, write_source
from kernelwright.optimize.passes import CATALOGUE, Context
from kernelwright.optimize.plan import candidate, refusal
from kernelwright.optimize.stages import OptimizeOptions, RealStages
from warm_start import warm_start

MODEL = """
import torch

GRAPHS = []

def keeping(graph, _inputs):
    GRAPHS.append(graph)
    return graph.forward

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two, self.norm = torch.nn.Linear(64, 64), torch.nn.Linear(64, 64), torch.nn.LayerNorm(64)
    def forward(self, x):
        return self.norm(torch.relu(self.one(x)) + self.two(x))

def get_model_and_input():
    model = Model().eval()
    {compiled}
    return model, torch.randn(32, 64)
"""
OF_SHARES = ("inductor_memory_planning", "inductor_fuse_more")
WAYS = {"plain": "pass", "around": "model = torch.compile(model, backend=keeping)", "in_place": "model.compile(backend=keeping)"}


def workload(tmp_path: Path, way: str) -> WorkloadRef:
    path = tmp_path / f"net_{way}.py"
    path.write_text(MODEL.format(compiled=WAYS[way]))
    return WorkloadRef(path=path, name=f"net_{way}")


def known(tmp_path: Path, way: str) -> Context:
    """What a run of the optimiser knows when its baseline is there."""
    stages = RealStages(OptimizeOptions(device="cpu", python=sys.executable), lambda _line: None)
    with warm_start():
        run = stages.profile(workload(tmp_path, way), tmp_path / way, None, 120.0)
    assert run.result.facts is not None and run.result.environment is not None
    return Context(facts=run.result.facts, environment=run.result.environment, profile=run.profile, uncompiled=run.uncompiled)


def applicable(given: Context) -> set[str]:
    """But for those that a measured share decides on, which differs from run to run."""
    reasons = {name: refusal(candidate([name], given), given) for name in CATALOGUE if name not in OF_SHARES}
    return {name for name, reason in reasons.items() if reason is None}


@pytest.fixture(name="plain", scope="module")
def of_the_plain_model(tmp_path_factory: pytest.TempPathFactory) -> Context:
    return known(tmp_path_factory.mktemp("plain"), "plain")


@pytest.mark.parametrize("way", ["around", "in_place"])
def test_what_applies_to_the_model_applies_to_it_compiled(plain: Context, way: str, tmp_path: Path) -> None:
    assert not plain.facts.already_compiled and plain.uncompiled is None and not (tmp_path / "plain" / "uncompiled").exists()
    given = known(tmp_path, way)
    assert given.facts.already_compiled and not given.facts.compiled_inside
    assert applicable(plain) >= {"freeze_weights", "fuse_parallel_linears", "compile_default"}
    assert applicable(plain) | {"unwrap_compiled"} == applicable(given)
    assert {item.operator_name for item in given.seen.operators} == {item.operator_name for item in plain.seen.operators}
    stored = Profile.load(tmp_path / way / "uncompiled")
    assert given.uncompiled is not None and stored.operators == given.uncompiled.operators
    assert any(item.flops for item in stored.operators if item.operator_name == "aten::addmm"), "counted one by one, too"


def loaded(path: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("way", ["around", "in_place"])
def test_a_written_candidate_runs_the_model_without_its_torch_compile(plain: Context, way: str, tmp_path: Path) -> None:
    import torch

    ref = workload(tmp_path, way)
    text = render_source(ref, plain.facts, [CATALOGUE[name] for name in ("unwrap_compiled", "no_grad")], device="cpu")
    made, own = loaded(write_source(tmp_path / "candidate.py", text), f"candidate_{way}"), loaded(ref.path, f"own_{way}")
    model, x = own.get_model_and_input()
    fast = made.optimize(model, x)
    got = fast(x)
    assert not own.GRAPHS
    torch.testing.assert_close(got, model(x))
    assert own.GRAPHS, "the given model is compiled as ever"

"""test_optimized.py: it passes beside the optimized.py that it was written with, alone with torch, and fails where that is broken."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import unittest
from pathlib import Path

import pytest

from kernelwright.model.workload import TensorSpec, WorkloadFacts, WorkloadRef
from kernelwright.optimize.checks import render_tests
from kernelwright.optimize.generate import render_source, write_source
from kernelwright.optimize.passes import CATALOGUE

pytest.importorskip("torch")

WORKLOAD = '''
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
        self.norm.running_mean.fill_(0.3)

    def forward(self, x, scale):
        return {"y": torch.relu(self.norm(self.conv(x))) * scale, "n": 3}


def get_model_and_input(b=2):
    return Net().eval(), (torch.randn(b, 3, 8, 8), torch.tensor(1.5))
'''
STEP = '''
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)

    def forward(self, x):
        return torch.tanh(self.conv(x)).square().mean()


def get_model_and_input():
    return Net().train(), torch.randn(2, 3, 8, 8)
'''

OWN_STATE = """
import torch
from torch import nn


class Cached(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.register_buffer("cache", torch.zeros(64, 2, 4))
        self.register_buffer("at", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        self.cache[self.at] = self.layer(x)
        self.at += 1
        return self.cache.sum(0) * self.at


def get_model_and_input():
    return Cached().eval(), torch.randn(2, 4)
"""
IN_PLACE = """
import torch
from torch import nn


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        x.mul_(0.5).add_(self.layer(x))
        return x, torch.complex(x, 1 - x)


def get_model_and_input():
    return Scaled().eval(), torch.randn(2, 4)
"""


def facts(inputs: tuple[TensorSpec, ...], **changes: object) -> WorkloadFacts:
    return WorkloadFacts.model_validate({
        "form": "model", "version": None, "params": {}, "inputs": inputs, "outputs": (), "training": False, "dtype": "float32",
        "parameter_count": 120, "parameter_bytes": 480, "already_compiled": False, **changes})


NET = facts((TensorSpec(path="0", shape=(2, 3, 8, 8), dtype="float32", device="cpu"),
             TensorSpec(path="1", shape=(), dtype="float32", device="cpu")), params={"b": 2})
SMALL = facts((TensorSpec(path="", shape=(2, 4), dtype="float32", device="cpu"),))
TRAINING = facts((TensorSpec(path="", shape=(2, 3, 8, 8), dtype="float32", device="cpu"),), training=True)


def made(folder: Path, text: str, of: WorkloadFacts, *names: str) -> Path:
    """optimized.py and its tests in a folder; the former's path."""
    (folder / "net_workload.py").write_text(text)
    ref = WorkloadRef(path=folder / "net_workload.py", name="net")
    source = render_source(ref, of, [CATALOGUE[name] for name in names], device="cpu", file_name="optimized.py", standalone=True)
    write_source(folder / "test_optimized.py", render_tests(names, of))
    return write_source(folder / "optimized.py", source)


def ran(folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[set[str], set[str], set[str]]:
    """(tests that passed, that failed, that were skipped) in this process."""
    monkeypatch.syspath_prepend(str(folder))
    for name in ("optimized", "test_optimized", "net_workload"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    module = importlib.import_module("test_optimized")
    result = unittest.TestResult()
    tests = list(unittest.defaultTestLoader.loadTestsFromModule(module))
    names = {case.id().rpartition(".")[2] for group in tests for case in group}
    unittest.TestSuite(tests).run(result)
    for name in ("optimized", "test_optimized", "net_workload"):
        sys.modules.pop(name, None)
    if not result.testsRun:
        return set(), {str(error) for _, error in result.errors}, set()
    bad = {case.id().rpartition(".")[2] for case, _ in (*result.failures, *result.errors)}
    skipped = {case.id().rpartition(".")[2] for case, _ in result.skipped}
    return names - bad - skipped, bad, skipped


def test_it_passes_in_a_fresh_process_that_has_torch_and_the_folder_alone(tmp_path):
    made(tmp_path, WORKLOAD, NET, "fold_conv_bn", "channels_last", "no_grad")
    bare = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    code = "import sys, unittest; sys.modules['kernelwright'] = None; unittest.main('test_optimized', verbosity=2)"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=bare, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0 and "Ran 7 tests" in done.stderr and "skipped" not in done.stderr, done.stderr


@pytest.mark.parametrize(("text", "cannot"), [
    (OWN_STATE, set()), (IN_PLACE, {"test_outputs_require_gradients_where_the_originals_do"})], ids=["a cache", "inputs changed in place"])
def test_a_call_that_changes_its_model_or_its_inputs_is_held_against_one_from_the_same_state(tmp_path, monkeypatch, text, cannot):
    file = made(tmp_path, text, SMALL, "no_grad")
    good, bad, skipped = ran(tmp_path, monkeypatch)
    assert not bad and skipped == cannot and "test_weights_that_change_in_place_are_seen" in good
    file.write_text(file.read_text().replace("time.perf_counter() + 3", "time.perf_counter()"))
    done = subprocess.run([sys.executable, str(file)], cwd=tmp_path, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0 and "relative difference of the outputs: 0.0e+00" in done.stdout, done.stdout + done.stderr


def test_a_training_steps_gradients_are_compared(tmp_path, monkeypatch):
    made(tmp_path, STEP, TRAINING, "channels_last")
    good, bad, skipped = ran(tmp_path, monkeypatch)
    assert not bad and not skipped and "test_gradients_are_the_originals" in good


def test_at_lower_precision_the_limit_is_wider_and_float64_is_not_asked(tmp_path, monkeypatch):
    made(tmp_path, WORKLOAD, NET, "bf16", "no_grad")
    good, bad, _skipped = ran(tmp_path, monkeypatch)
    assert not bad and "test_outputs_are_the_originals" in good and not any("float64" in name for name in good)


BROKEN = {
    "wrong by a thousandth": ("lambda *a, **k: map_tensors(lambda one: one * 1.001, fast(*a, **k))", "float64_it_is_no_less_accurate"),
    "wrong": ("lambda *a, **k: map_tensors(lambda one: one * 1.1, fast(*a, **k))", "outputs_are_the_originals"),
    "another dtype": ("lambda *a, **k: map_tensors(lambda one: one.double(), fast(*a, **k))", "outputs_are_the_originals"),
    "the first answer for ever": ("(lambda kept: lambda *a, **k: kept)(fast(*args, **kwargs))", "other_values_give_other_outputs"),
    "one buffer for all calls": (
        "(lambda kept: lambda *a, **k: map_tensors(lambda one: kept.setdefault(0, one).copy_(one), fast(*a, **k)))({})",
        "outputs_outlive_the_next_call"),
    "inputs changed": ("lambda *a, **k: (fast(*a, **k), a[0].zero_())[0]", "inputs_are_changed_by_none"),
    "weights of the first call": ("(lambda kept: lambda *a, **k: kept(*a, **k))(copy.deepcopy(model))", "weights_that_change_in_place"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_it_fails_where_optimized_py_is_broken(tmp_path, monkeypatch, what):
    code, test = BROKEN[what]
    file = made(tmp_path, WORKLOAD, NET, "no_grad")
    text = file.read_text()
    assert text.count("    return fast\n\n\n# --- the entry") == 1
    file.write_text(text.replace("    return fast\n\n\n# --- the entry", f"    return {code}\n\n\n# --- the entry"))
    _good, bad, _skipped = ran(tmp_path, monkeypatch)
    assert any(test in name for name in bad), f"{what}: {bad}"


def test_a_missing_original_is_an_error_not_a_pass(tmp_path, monkeypatch):
    made(tmp_path, WORKLOAD, NET, "no_grad")
    (tmp_path / "net_workload.py").unlink()
    good, bad, _skipped = ran(tmp_path, monkeypatch)
    assert not good and any("the original workload is missing" in words for words in bad)

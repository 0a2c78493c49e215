"""Workloads of forms 1 to 3, loaded in this process."""

import importlib
import pickle
import sys
from pathlib import Path

import pytest
import torch

from kernelwright.probe import loaders, machine, script, tree
from kernelwright.probe.failures import ProbeFailure
from kernelwright.probe.run import carry_out

WORKLOADS = Path(__file__).resolve().parents[1] / "data" / "workloads"


@pytest.fixture(autouse=True)
def clean_imports():
    path, modules = list(sys.path), set(sys.modules)
    yield
    ours = {folder for folder in sys.path if folder not in path}
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if str(Path(str(getattr(sys.modules[name], "__file__", None) or "/")).parent) in ours:
            del sys.modules[name]


def load(path, **options):
    return loaders.load(str(path), device="cpu", **options)


def test_same_seed_same_workload_other_seed_other_inputs():
    one, other = load(WORKLOADS / "mlp.py", seed=3), load(WORKLOADS / "mlp.py", seed=3)
    assert torch.equal(one.args[0], other.args[0]) and torch.equal(one.step(), other.step())
    (fresh,), _ = one.fresh_inputs(4)
    assert fresh.shape == one.args[0].shape and not torch.equal(fresh, one.args[0])
    assert torch.equal(fresh, one.fresh_inputs(4)[0][0])


def test_train_mode_without_a_loss_is_inference():
    workload = load(WORKLOADS / "mlp.py")
    assert workload.model.training and not workload.training
    assert all(weight.grad is None for weight in workload.model.parameters())


def test_training_step_starts_from_empty_gradients():
    workload = load(WORKLOADS / "training.py")
    assert workload.training
    workload.step()
    first = workload.model.layer.weight.grad.clone()
    workload.step()
    assert torch.equal(first, workload.model.layer.weight.grad) and first.abs().sum() > 0


def test_a_training_step_whose_function_has_no_loss_fails_clearly():
    workload = load(WORKLOADS / "training.py")
    with pytest.raises(ProbeFailure, match="no scalar loss"):
        workload.step(fn=lambda x, target: x)


def test_params_reach_the_signature_and_the_module():
    workload = load(WORKLOADS / "nested.py", params={"rows": "3", "columns": "2"})
    assert workload.kwargs["x"].shape == (3, 2) and workload.args == ()
    assert workload.params == {"rows": 3, "columns": 2}


def test_kernelbench_model_and_model_new_get_equal_weights():
    workload = load(WORKLOADS / "kernelbench.py", seed=5)
    again = loaders.build_kernelbench_model(workload.module, workload.module.Model, workload.params, "cpu", 5)
    assert torch.equal(workload.model.weight, again.weight)
    assert workload.model.offset == 0.5 and len(workload.args) == 2 and workload.args[0].shape == (5, 16)


def test_versions_default_to_the_last_and_agree_with_the_reference():
    workload = load(WORKLOADS / "versions.py")
    assert workload.version == "v2" and workload.model is workload.module.v2
    assert (workload.flops(), workload.bytes_moved()) == (36.0, 84.0)
    expected = workload.reference(*workload.args)
    assert torch.allclose(workload.step().double(), expected) and torch.allclose(workload.step(fn=workload.module.v1).double(), expected)


WORKED = """
import pathlib
import torch
PARAMS = {"n": 4}
def get_inputs(n):
    pathlib.Path(__file__).with_suffix(".built").touch()
    return (torch.ones(n, n),)
def forward(x): return x.t().contiguous()
VERSIONS = {"v1": forward}
"""


@pytest.mark.parametrize("name", loaders.OWN_NUMBERS)
@pytest.mark.parametrize("value", ["-1", "float('nan')", "float('inf')", "10**400", "'many'", "True", "None", "[1] * 1000"])
@pytest.mark.parametrize("function", [False, True])
def test_work_that_is_no_number_is_refused_before_anything_is_built(name, value, function, tmp_path):
    path = tmp_path / "worked.py"
    path.write_text(WORKED + f"def {name}(n): return {value}\n")
    with pytest.raises(ProbeFailure, match="0 or more") as caught:
        load(path, function=(str(path), "forward")) if function else load(path)
    assert caught.value.code == f"bad_{name}" and caught.value.exit_code == 2 and len(caught.value.message) < 150
    assert not path.with_suffix(".built").exists()


def test_no_flops_and_no_bytes_are_work_that_is_known(tmp_path):
    path = tmp_path / "worked.py"
    path.write_text(WORKED + "def flops(n): return 0\ndef bytes_moved(n): return 0.0\n")
    workload = load(path)
    assert (workload.flops(), workload.bytes_moved()) == (0.0, 0.0)


def test_a_flops_that_fails_spares_the_workload(tmp_path):
    path = tmp_path / "worked.py"
    path.write_text(WORKED + "def flops(n): raise KeyError('shapes are not known yet')\n")
    workload = load(path)
    with pytest.raises(KeyError):
        workload.flops()


def test_import_by_name_gives_the_same_module_and_leaves_no_bytecode(tmp_path):
    path = tmp_path / "own_name_of_a_workload.py"
    path.write_text("import torch\nclass Net(torch.nn.ReLU): pass\ndef get_model_and_input(): return Net(), torch.ones(2)\n",
                    encoding="utf-8")
    workload = load(path)
    assert importlib.import_module("own_name_of_a_workload") is workload.module
    assert type(pickle.loads(pickle.dumps(workload.model))) is workload.module.Net
    assert [item.name for item in tmp_path.iterdir()] == ["own_name_of_a_workload.py"]


@pytest.mark.parametrize("name", ["random.py", "my-net.py", "2nd.py", "class.py"])
def test_any_file_name_loads_and_hides_no_library(name, tmp_path):
    import random

    path = tmp_path / name
    path.write_text("import torch\nfrom dataclasses import dataclass\n@dataclass\nclass Out:\n    y: torch.Tensor\n"
                    "def get_model_and_input(): return (lambda x: Out(x)), torch.ones(2)\n", encoding="utf-8")
    assert [leaf for leaf, _ in tree.leaves(load(path).step())] == ["y"]
    assert sys.modules["random"] is random
    assert loaders.import_file(str(path)) is loaders.import_file(str(path))


def test_a_rewritten_candidate_of_equal_size_is_not_stale(tmp_path):
    for answer in ("11", "22"):
        path = tmp_path / "candidate_of_a_test.py"
        path.write_text(f"ANSWER = {answer}\n", encoding="utf-8")
        assert int(answer) == loaders.import_file(str(path)).ANSWER
        del sys.modules["candidate_of_a_test"]


def test_a_failed_import_leaves_nothing_behind(tmp_path):
    path = tmp_path / "half_made_workload.py"
    path.write_text("x = 1\nraise ValueError('no')\n", encoding="utf-8")
    with pytest.raises(ValueError, match="no"):
        load(path)
    assert "half_made_workload" not in sys.modules


def test_losses():
    loss = torch.ones((), requires_grad=True) * 2
    assert loaders.find_loss(loss) is loss and loaders.find_loss({"loss": loss}) is loss
    assert loaders.find_loss(torch.ones(())) is None and loaders.find_loss((loss,)) is None and loaders.find_loss({}) is None
    assert loaders.find_loss(torch.ones(1, requires_grad=True) * 2) is None


def test_a_candidate_imports_the_workload_beside_its_folder(tmp_path):
    (tmp_path / "beside_it.py").write_text("ANSWER = 42\n", encoding="utf-8")
    for folder in ("candidates", "elsewhere"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"try_{folder}.py").write_text("from beside_it import ANSWER\n", encoding="utf-8")
    with pytest.raises(ModuleNotFoundError):
        loaders.import_file(str(tmp_path / "elsewhere" / "try_elsewhere.py"))
    assert loaders.import_file(str(tmp_path / "candidates" / "try_candidates.py")).ANSWER == 42


@pytest.mark.parametrize(("load_average", "expected"), [
    (2.0, None), (2.04, "the machine is busy: load average 2.0 on 2 cores"), (7.5, "the machine is busy: load average 7.5 on 2 cores")])
def test_a_busy_machine_is_told_with_its_load_and_cores(load_average, expected, monkeypatch):
    monkeypatch.setattr("os.getloadavg", lambda: (load_average, 0.0, 0.0))
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    monkeypatch.setattr(machine, "usable_cpus", lambda: 2)
    assert machine.busy_machine() == expected


def test_load_is_held_against_the_cpus_that_may_be_used(monkeypatch):
    monkeypatch.setattr("os.getloadavg", lambda: (4.1, 0.0, 0.0))
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {3, 5}, raising=False)
    assert machine.busy_machine() == "the machine is busy: load average 4.1 on the 2 usable of 8 cores"


def test_a_scripts_profile_carries_the_warning_too(tmp_path, monkeypatch):
    monkeypatch.setattr("os.getloadavg", lambda: (99.0, 0.0, 0.0))
    asked = {"action": "event", "workload": {"path": "train.py"}, "device": "cpu", "out_dir": str(tmp_path),
             "script": {"argv0": "", "argv": []}}
    run = script.ScriptRun(asked)
    run.window.device = "cpu"
    monkeypatch.setattr(run, "_facts", lambda weights: None)
    monkeypatch.setattr(run, "_collect_compiled", lambda: None)
    monkeypatch.setattr(run, "leave_later", lambda grace_s: None)
    run._finish()
    assert run.result["warnings"][0].startswith("the machine is busy: load average 99.0")


def test_a_machine_without_a_load_average_is_not_called_busy(monkeypatch):
    def none():
        raise OSError("no load average")

    monkeypatch.setattr("os.getloadavg", none)
    assert machine.busy_machine() is None


def test_a_cpu_measurement_carries_the_warning_and_reads_the_load_before_its_own_work(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr("os.getloadavg", lambda: seen.append("load") or (99.0, 0.0, 0.0))
    monkeypatch.setattr(loaders, "load", lambda *given, _load=loaders.load: seen.append("work") or _load(*given))
    request = {"action": "event", "workload": {"path": str(WORKLOADS / "mlp.py")}, "device": "cpu", "out_dir": str(tmp_path), "steps": 5}
    result = carry_out(request)
    assert seen == ["load", "work"] and result["status"] == "ok"
    assert [warning for warning in result["warnings"] if warning.startswith("the machine is busy: load average 99.0 on ")]

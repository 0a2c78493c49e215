"""Versions as functions of files, CuPy arrays, what languages lack, streams of event mode, the autotuner's journal."""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from kernelwright.model.capture import ProbeRequest, ProbeResult, ProbeWorkload
from kernelwright.model.errors import BadInput, WorkloadFailed
from kernelwright.pipeline.again import JOURNAL, run_again_after_autotuning
from kernelwright.probe import autotuned, facts, failures, loaders, streams, tree

HARNESS = """
import torch
PARAMS = {"n": 4}
def get_inputs(n): return torch.ones(n, 2)
def get_init_inputs(): return [3.0]
def flops(n): return 2.0 * n
"""
VERSION = """
import torch
from extension_of_the_project import ADD
def forward(x): return x + ADD
class Net(torch.nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor(scale))
    def forward(self, x): return x * self.scale
"""


@pytest.fixture
def files(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "harness_p9.py").write_text(HARNESS)
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "version_p9.py").write_text(VERSION)
    (tmp_path / "built").mkdir()
    (tmp_path / "built" / "extension_of_the_project.py").write_text("ADD = 5\n")
    path, modules = list(sys.path), set(sys.modules)
    yield tmp_path
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if name.endswith(("_p9", "extension_of_the_project")):
            del sys.modules[name]


def named(folder: Path, function: str | None, **more: object) -> dict[str, object]:
    return {"path": str(folder / "harness_p9.py"), "version": "v2", "params": {"n": "3"}, "function": function,
            "source": str(folder / "kernels" / "version_p9.py"), "import_from": [str(folder / "built")], **more}


def test_a_function_of_another_file_gets_the_workloads_inputs(files: Path) -> None:
    workload = loaders.load_named(named(files, "forward"), "cpu")
    assert torch.equal(workload.step(), torch.full((3, 2), 6.0)) and workload.flops() == 6.0
    described = facts.describe(workload, workload.step())
    assert (described["version"], described["form"], described["params"]) == ("v2", "versions", {"n": 3})


def test_a_class_is_built_with_the_workloads_initial_inputs(files: Path) -> None:
    workload = loaders.load_named(named(files, "Net"), "cpu")
    assert torch.equal(workload.step(), torch.full((3, 2), 3.0)) and isinstance(workload.model, torch.nn.Module)


def test_a_function_that_is_not_there_is_named_with_those_that_are(files: Path) -> None:
    with pytest.raises(failures.ProbeFailure, match="no 'foward'") as caught:
        loaders.load_named(named(files, "foward"), "cpu")
    assert (caught.value.code, caught.value.fix, caught.value.exit_code) == ("no_such_function", "did you mean forward?", 2)


def test_a_version_with_a_workload_file_of_its_own_keeps_its_name(files: Path) -> None:
    own = files / "own_p9.py"
    own.write_text("import torch\ndef get_model_and_input(): return torch.nn.Identity(), torch.ones(2)\n")
    workload = loaders.load_named({"path": str(own), "version": "v7", "params": {}, "source": str(own), "function": None}, "cpu")
    assert (workload.form, workload.version) == ("model", "v7")


def test_inputs_that_nobody_makes_are_asked_for(files: Path) -> None:
    with pytest.raises(failures.ProbeFailure, match="neither get_inputs"):
        loaders.load_named(named(files, "forward", path=str(files / "kernels" / "version_p9.py"), params={}), "cpu")


class _Array:
    """A CuPy array's face over a tensor's memory."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

    def __dlpack__(self, **options: object) -> object:
        return self.tensor.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.tensor.__dlpack_device__()  # type: ignore[return-value]


_Array.__module__ = "cupy"


def test_cupy_arrays_count_as_tensors_over_the_same_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", types.SimpleNamespace(from_dlpack=lambda tensor: _Array(tensor)))
    array = _Array(torch.ones(3))
    [(path, view)] = tree.leaves({"x": array})
    assert path == "x" and view.shape == (3,)
    view.fill_(2)
    assert array.tensor[0] == 2
    assert tree.to_device([array], "cpu")[0] is array
    copied = tree.map_tensors(torch.clone, [array])[0]
    assert isinstance(copied, _Array) and copied is not array and torch.equal(copied.tensor, array.tensor)


@pytest.mark.parametrize(("error", "code", "fix"), [
    (ModuleNotFoundError("No module named 'cupy'", name="cupy"), "missing_module", "cupy-cuda12x"),
    (ModuleNotFoundError("No module named 'cuda'", name="cuda"), "missing_module", "cuda-tile"),
    (ModuleNotFoundError("No module named 'cutlass.cute'", name="cutlass.cute"), "missing_module", "nvidia-cutlass-dsl"),
    (ModuleNotFoundError("No module named 'my_ext'", name="my_ext"), "missing_module", "import_from"),
    (OSError("CUDA_HOME environment variable is not set. Please set it to your CUDA install root."), "no_cuda_toolkit", "CUDA_HOME"),
    (RuntimeError("Ninja is required to load C++ extensions (pip install ninja to get it)"), "no_ninja", "pip install ninja"),
    (RuntimeError("The detected CUDA version (11.8) mismatches the version that was used to compile\nPyTorch (12.6)."), "cuda_mismatch",
     "torch.version.cuda"),
    (RuntimeError("cudaErrorInsufficientDriver: CUDA driver version is insufficient"), "no_cuda", "is_available"),
])
def test_what_a_language_lacks_is_exit_3_with_the_mend(error: Exception, code: str, fix: str) -> None:
    failure = failures.describe(error, "/w.py")
    assert (failure.code, failure.exit_code) == (code, 3) and fix in failure.fix


def test_streams_that_a_call_enters_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = types.SimpleNamespace(cuda_stream=1), types.SimpleNamespace(cuda_stream=2)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: first)
    monkeypatch.setattr(torch.cuda, "set_stream", lambda stream: None)
    original = torch.cuda.set_stream

    def call() -> None:
        for stream in (second, first, second):
            torch.cuda.set_stream(stream)

    assert streams.entered(call) == 1 and streams.entered(lambda: None) == 0 and torch.cuda.set_stream is original


class _Autotuner:
    """triton.runtime.autotuner.Autotuner's way to time one configuration."""

    def __init__(self) -> None:
        self.fn = types.SimpleNamespace(__name__="add_kernel")
        self.benched: list[str] = []

    def _bench(self, *args: object, config: str, **meta: object) -> list[float]:
        self.benched.append(config)
        return [float(len(self.benched)), 1.0, 2.0]


def test_a_second_run_takes_the_timings_of_the_first(tmp_path: Path) -> None:
    warnings: list[str] = []
    original = _Autotuner._bench
    module = types.SimpleNamespace(Autotuner=_Autotuner)
    try:
        with autotuned.journal(str(tmp_path), again=False, warn=warnings.append) as kept:
            kept.install(module)
            tuner = _Autotuner()
            first = [tuner._bench(config=name) for name in ("a", "b")]
        _Autotuner._bench = original  # type: ignore[method-assign]
        with (tmp_path / autotuned.JOURNAL).open("a") as file:
            file.write('{"kernel": "add_k')  # the process died here
        with autotuned.journal(str(tmp_path), again=True, warn=warnings.append) as kept:
            kept.install(module)
            tuner = _Autotuner()
            assert [tuner._bench(config=name) for name in ("a", "b", "c")][:2] == first and tuner.benched == ["c"]
        assert len(warnings) == 1 and warnings[0].startswith("2 timings of the autotuner")
    finally:
        _Autotuner._bench = original  # type: ignore[method-assign]


@pytest.mark.parametrize(("error", "timed", "runs"), [
    (WorkloadFailed("workload_died", "was killed by signal 6"), True, 2),
    (WorkloadFailed("workload_died", "was killed by signal 6"), False, 1),
    (WorkloadFailed("workload_raised", "RuntimeError: CUDA error: an illegal memory access"), True, 2),
    (WorkloadFailed("out_of_memory", "OutOfMemoryError"), True, 2), (WorkloadFailed("workload_raised", "ValueError: no"), True, 1),
    (BadInput("unknown_version", "no"), True, 1),
])
def test_only_a_crash_after_autotuning_is_tried_again(tmp_path: Path, error: Exception, timed: bool, runs: int) -> None:
    asked: list[bool] = []
    (tmp_path / JOURNAL).write_text("of an earlier run")

    def run(request: ProbeRequest) -> ProbeResult:
        asked.append(request.again)
        if timed:
            (tmp_path / JOURNAL).write_text(json.dumps({"kernel": "k", "config": "c", "time_ms": 1}) + "\n")
        if len(asked) == 1:
            raise error
        return ProbeResult(status="ok")

    request = ProbeRequest(action="event", workload=ProbeWorkload(path="/w.py"), device="cpu", out_dir=str(tmp_path))
    said: list[str] = []
    if runs == 2:
        assert "crashed after autotuning" in run_again_after_autotuning(request, run, said.append).warnings[0]
    else:
        with pytest.raises(type(error)):
            run_again_after_autotuning(request, run, said.append)
    assert asked == [False, True][:runs] and len(said) == runs - 1

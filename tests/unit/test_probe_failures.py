"""What a user is told when a workload cannot be run: code, exit code, place and mend. In this process, without starting another."""

import sys

import pytest

from kernelwright.model.capture import ProbeRequest, ProbeResult
from kernelwright.probe import run


@pytest.fixture(autouse=True)
def clean_imports():
    path, argv = list(sys.path), list(sys.argv)
    yield
    sys.path[:], sys.argv[:] = path, argv
    sys.modules.pop("workload", None)


def written(tmp_path, text):
    path = tmp_path / "workload.py"
    path.write_text(text, encoding="utf-8")
    return path


def probe(tmp_path, workload, *, version=None, params=None, **options):
    named = {"path": str(workload), "version": version, "params": params or {}}
    request = {"action": "describe", "workload": named, "device": "cpu", "out_dir": str(tmp_path), **options}
    run.carry_out(ProbeRequest.model_validate(request).model_dump())
    return ProbeResult.model_validate_json((tmp_path / "result.json").read_text(encoding="utf-8"))


HEAD = "import torch\n"
FAILURES = {
    "syntax error": ("def get_model_and_input(:\n", {}, 2, "syntax_error", "workload.py:1"),
    "no entry point": (HEAD + "x = 1\n", {}, 2, "no_entry_point", "workload.py"),
    "no get_inputs": (HEAD + "class Model(torch.nn.Module): pass\n", {}, 2, "no_entry_point", "workload.py"),
    "bad pair": (HEAD + "def get_model_and_input():\n    return torch.nn.ReLU()\n", {}, 2, "bad_return", "workload.py"),
    "unknown version": ("VERSIONS = {'a': abs, 'b': abs}\ndef get_inputs(): return ()\n", {"version": "c"}, 2, "unknown_version",
                        "workload.py"),
    "unknown parameter": ("def get_model_and_input(b=1): return abs, 1\n", {"params": {"c": "1"}}, 2, "unknown_parameter", "workload.py"),
    "bad parameter": ("def get_model_and_input(b=1): return abs, 1\n", {"params": {"b": "x"}}, 2, "bad_parameter", "workload.py"),
    "missing module": ("import a_module_that_nobody_has\n", {}, 3, "missing_module", "workload.py:1"),
    "raises": (HEAD + "def helper():\n    raise KeyError('no')\ndef get_model_and_input():\n    return helper()\n", {}, 4,
               "workload_raised", "workload.py:3"),
    "raises in torch": (HEAD + "def get_model_and_input():\n    return torch.nn.Linear(3, 3), torch.ones(2, 2)\n", {}, 4, "workload_raised",
                        "workload.py"),
    "wrong arity": (HEAD + "def f(a): return a\ndef get_model_and_input():\n    return f, (torch.ones(1), 2)\n", {}, 4, "workload_raised",
                    "workload.py"),
    "exits": ("raise SystemExit(0)\n", {}, 4, "workload_exited", "workload.py:1"),
    "no tensor out": (HEAD + "def get_model_and_input():\n    return (lambda x: 3), torch.ones(1)\n", {}, 4, "no_tensor_output",
                      "workload.py"),
    "out of memory": (HEAD + "def get_model_and_input():\n    return torch.nn.ReLU(), torch.empty(2**46)\n", {}, 4, "out_of_memory",
                      "workload.py:3"),
}


@pytest.mark.parametrize("name", FAILURES)
def test_failures_say_what_where_and_how_to_mend(name, tmp_path):
    text, request, exit_code, code, where = FAILURES[name]
    result = probe(tmp_path, written(tmp_path, text), **request)
    assert result.status == "error"
    assert (result.error.code, result.error.exit_code) == (code, exit_code), result.error
    assert result.error.where == str(tmp_path / where) and result.error.fix
    if name in ("unknown version", "unknown parameter"):
        assert ("a, b" if "version" in name else "b") in result.error.fix


def test_a_missing_file(tmp_path):
    error = probe(tmp_path, tmp_path / "absent.py").error
    assert (error.code, error.exit_code, error.where) == ("no_such_file", 2, str(tmp_path / "absent.py"))


def test_a_version_of_a_file_without_versions(tmp_path):
    error = probe(tmp_path, written(tmp_path, FAILURES["wrong arity"][0]), version="v1").error
    assert (error.code, error.exit_code) == ("no_versions", 2)


def test_an_optional_part_that_fails_costs_its_figures_alone(tmp_path):
    text = """
import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode
def model(x):
    if _get_current_dispatch_mode() is not None:
        raise ValueError("not while watched")
    return x @ x
def get_model_and_input():
    return model, torch.ones(2, 2)
"""
    result = probe(tmp_path, written(tmp_path, text), action="event", steps=2, warmup=1)
    assert result.status == "ok" and len(result.timing.samples_ns) == 2
    assert result.work.flops is None and result.work.flops_source == "counting failed"
    assert any("not while watched" in warning and "workload.py:6" in warning for warning in result.warnings)


def test_an_unknown_compile_mode_is_refused(tmp_path):
    request = {"action": "describe", "workload": {"path": str(written(tmp_path, FAILURES["wrong arity"][0]))}, "device": "cpu",
               "out_dir": str(tmp_path), "compile_mode": "fast"}
    assert run.carry_out(request)["error"]["code"] == "bad_compile_mode"

"""Failures described, files written whole, recordings' ranges, the environment."""

import gzip
import json
import os
import subprocess
import sys
import threading
import time
import types
from pathlib import Path

import pytest
import torch
from torch.profiler import ProfilerActivity, profile, record_function

from kernelwright.probe import annotation, calibrate, environment, failures, results


def test_the_innermost_line_of_the_users_folder_is_named(tmp_path):
    helper, workload = tmp_path / "helper.py", tmp_path / "workload.py"
    helper.write_text("import json\ndef read():\n    return json.loads('{')\n", encoding="utf-8")
    namespace = {}
    exec(compile(helper.read_text(encoding="utf-8"), str(helper), "exec"), namespace)
    with pytest.raises(ValueError) as caught:
        namespace["read"]()
    failure = failures.describe(caught.value, str(workload))
    assert failure.where == f"{helper}:3" and failure.exit_code == 4 and "JSONDecodeError" in failure.message
    assert "json.loads" in failure.trace


def test_a_failure_in_a_folder_that_is_gone_is_described_all_the_same(tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(FileNotFoundError) as caught:
        exec(compile("os.getcwd()", "<generated>", "exec"), {"os": os})  # a relative name, as <frozen importlib> is
    failure = failures.describe(caught.value, "/w.py")
    assert (failure.code, failure.exit_code, failure.where.rpartition(":")[0]) == ("workload_raised", 4, __file__)
    assert "FileNotFoundError" in failure.message


@pytest.mark.parametrize(("error", "code", "exit_code"), [
    (MemoryError(), "out_of_memory", 4), (torch.OutOfMemoryError("CUDA out of memory"), "out_of_memory", 4),
    (KeyboardInterrupt(), "interrupted", 130), (SystemExit(3), "workload_exited", 4),
    (RuntimeError("InvalidCxxCompiler: No working C++ compiler found"), "no_cxx_compiler", 3),
    (RuntimeError("Found no NVIDIA driver on your system"), "no_cuda", 3)])
def test_known_causes(error, code, exit_code):
    failure = failures.describe(error, "/w.py")
    assert (failure.code, failure.exit_code) == (code, exit_code)


def test_results_hold_no_nan_and_no_half_files(tmp_path):
    path = tmp_path / "result.json"
    results.write_json(str(path), {"a": float("nan"), "b": [float("inf"), 1.5], "c": "\udc80"})
    assert json.loads(path.read_text(encoding="utf-8"))["b"] == [None, 1.5]
    with pytest.raises(TypeError):
        results.write_json(str(path), {"a": object()})
    assert [item.name for item in tmp_path.iterdir()] == ["result.json"]


def test_sought_bytes_are_found_across_blocks(tmp_path):
    for offset in (0, (1 << 20) - 3, 1 << 20):
        plain, packed = tmp_path / "plain", tmp_path / "packed.gz"
        plain.write_bytes(b"x" * offset + b"needle" + b"x" * 10)
        assert results.compress(str(plain), str(packed), b"needle") and not plain.exists()
        assert gzip.decompress(packed.read_bytes()) == b"x" * offset + b"needle" + b"x" * 10
    plain.write_bytes(b"nothing")
    assert not results.compress(str(plain), str(packed), b"needle")


def annotations(run):
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        run()
    return [event.name for event in profiler.events() if event.name.startswith(("kernelwright.", "stage:"))]


def test_module_ranges_nest_and_leave_no_hooks():
    class Failing(torch.nn.Module):
        def forward(self, x):
            raise ValueError("inside")

    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Sequential(torch.nn.ReLU()))

    def run():
        with annotation.module_ranges(model):
            model(torch.ones(1, 2))
            torch.nn.ReLU()(torch.ones(1))  # not of the model
        model(torch.ones(1, 2))

    assert sorted(annotations(run)) == [f"kernelwright.module:{path}" for path in ("", "0", "1", "1.0")]
    failing = Failing()
    with pytest.raises(ValueError, match="inside"), annotation.module_ranges(failing):
        failing(torch.ones(1))
    assert annotations(lambda: model(torch.ones(1, 2))) == []


def test_nvtx_stages_become_ranges(monkeypatch):
    depth = []
    fake = types.SimpleNamespace(push=lambda message: depth.append(message) or len(depth), pop=lambda: depth.pop())
    monkeypatch.setattr(torch.cuda.nvtx, "range_push", fake.push)
    monkeypatch.setattr(torch.cuda.nvtx, "range_pop", fake.pop)

    def run():
        with annotation.nvtx_stages(), torch.cuda.nvtx.range("stage:a"), torch.cuda.nvtx.range("other"), record_function("stage:b"):
            assert depth == ["stage:a", "other"]

    assert sorted(annotations(run)) == ["stage:a", "stage:b"] and depth == []
    assert torch.cuda.nvtx.range_push is fake.push


def test_slow_steps_are_profiled_fewer_times():
    assert [annotation.step_count(None, s) for s in (0.001, 1.1, 60.0)] == [5, 4, 1]
    assert annotation.step_count(9, 60.0) == 9


def test_a_visible_gpu_that_torch_cannot_use_is_said_not_hidden(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(environment, "visible_gpu", lambda: True)
    for asked in ("auto", "cuda"):
        with pytest.raises(failures.ProbeFailure) as caught:
            environment.resolve_device(asked)
        assert caught.value.exit_code == 3 and "--device cpu" in caught.value.fix
    assert environment.resolve_device("cpu") == "cpu"
    monkeypatch.setattr(environment, "visible_gpu", lambda: False)
    assert environment.resolve_device("auto") == "cpu"


def test_hidden_gpus_are_not_visible(monkeypatch):
    monkeypatch.setattr(environment.glob, "glob", lambda pattern: ["/dev/nvidia0"])
    for value in ("", "-1", "NoDevFiles"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
        assert not environment.visible_gpu()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert environment.visible_gpu()


def test_old_torch_is_refused(monkeypatch):
    environment.check_torch()
    monkeypatch.setattr(torch, "__version__", "2.3.1+cpu")
    with pytest.raises(failures.ProbeFailure, match="too old"):
        environment.check_torch()


def test_a_dtype_too_slow_for_a_ceiling_is_left_out(monkeypatch):
    monkeypatch.setattr(calibrate, "_fastest", lambda run, device, budget: 60.0)
    assert calibrate._matmul("bfloat16", "cpu") is None
    assert calibrate._matmul("float32", "cpu")["method"].startswith("matmul 256^3")  # a slow machine has a ceiling all the same
    monkeypatch.setattr(calibrate, "_fastest", lambda run, device, budget: 1e-3 if run.args[0].shape[0] <= 512 else 60.0)
    assert calibrate._matmul("float32", "cpu") == {"name": "matmul:float32", "value": pytest.approx(2 * 512**3 / 1e-3 / 1e12),
                                                   "unit": "TFLOP/s", "method": "matmul 512^3 float32, random normal data"}


def test_a_large_cache_still_gets_a_bandwidth_and_a_small_memory_none(monkeypatch):
    monkeypatch.setattr(calibrate, "_fastest", lambda run, device, budget_s: 0.1)
    for cache_mib, free_gib, size_mib in ((260, 20, 520), (32, 20, 128), (32, 1, 128), (260, 2, None)):
        monkeypatch.setattr(calibrate, "l2_bytes", lambda device, cache_mib=cache_mib: cache_mib << 20)
        monkeypatch.setattr(calibrate, "_free_bytes", lambda device, free_gib=free_gib: free_gib << 30)
        found = calibrate._bandwidth("cpu")
        assert (found and found["method"]) == (size_mib and f"copy of {size_mib} MiB, read + written"), cache_mib


def test_a_ceiling_counts_only_when_two_of_its_spread_rounds_agree():
    """Other work hides a ceiling for a while: one round of 0.0027 TFLOP/s beside rounds of 0.30 must not become the peak."""
    def told(name, values):
        left = iter(values)
        return lambda: {"name": name, "value": next(left), "unit": "TFLOP/s", "method": "m"}

    quiet, hidden, wild = calibrate.rounds([told("a", [0.30, 0.29]), told("b", [0.0027, 0.30, 0.29]), told("c", [1, 9, 81, 729, 6561])])
    assert [len(found) for found in (quiet, hidden, wild)] == [2, 3, calibrate.MAX_ROUNDS]
    assert calibrate.agreed(hidden) and max(one["value"] for one in hidden) == 0.30
    assert not calibrate.agreed(wild, calibrate.WILD) and not calibrate.agreed(quiet[:1])


def test_what_no_two_rounds_agree_on_is_left_out_and_said(monkeypatch):
    values = iter([1.0, 100.0, 1e4, 1e6, 1e8])
    monkeypatch.setattr(calibrate, "_bandwidth", lambda device: {"name": "bandwidth", "value": next(values), "unit": "GB/s"})
    monkeypatch.setattr(calibrate, "_matmul", lambda dtype, device: {"name": f"matmul:{dtype}", "value": 1.0, "unit": "TFLOP/s"})
    found, warnings = calibrate.peaks("cpu")
    assert {peak["name"] for peak in found} == {"matmul:float32", "matmul:float64", "matmul:bfloat16"}
    assert len(warnings) == 1 and "bandwidth (1 to 1e+08 GB/s)" in warnings[0] and "quiet" in warnings[0]


@pytest.mark.parametrize(("seconds", "calls"), [(0.022, [1, 1, 1, 1, 1]), (0.0005, [1, 3, 3, 3, 3])])
def test_long_gpu_calls_are_timed_one_by_one_and_short_ones_in_a_row(monkeypatch, seconds, calls):
    made = []
    monkeypatch.setattr(calibrate, "_once", lambda run, device, calls: made.append(calls) or seconds)
    assert calibrate._fastest(lambda: None, "cpu", budget_s=10.0) == seconds and made == calls


def leaving(body):
    """A probe's end, without torch: what it printed and how it ended."""
    start = Path(__file__).resolve().parents[2] / "src" / "kernelwright" / "probe" / "start.py"
    code = ("import importlib, importlib.util, os, sys\n"
            f"spec = importlib.util.spec_from_file_location('start', {str(start)!r})\n"
            "start = importlib.util.module_from_spec(spec); spec.loader.exec_module(start)\n"
            f"start.load_package({str(start.parent)!r})\n"
            f"run = importlib.import_module('kernelwright_probe.run')\n{body}\nprint('still here')\n")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    return done.stdout, done.returncode


def test_a_probe_leaves_at_once_but_not_before_what_the_workload_registered(tmp_path):
    told = "import atexit; atexit.register(print, 'saved')"
    assert leaving(f"{told}; run._leave(4, at_once=True)") == ("saved\n", 4)
    assert leaving(f"{told}; run._leave(0, at_once=False)") == ("still here\nsaved\n", 0)  # under a profiler
    fails = "import atexit; atexit.register(lambda: 1 / 0)"
    assert leaving(f"{told}; {fails}; run._leave(0, at_once=True)") == ("saved\n", 0)
    assert leaving(f"{told}; sys.stdout.close(); run._leave(0, at_once=True)")[1] == 0
    open_file = f"left = open({str(tmp_path / 'left.txt')!r}, 'w'); left.write('all of it'); {told}"
    assert leaving(f"{open_file}; run._leave(0, at_once=True)") == ("saved\n", 0)
    assert (tmp_path / "left.txt").read_text() == "all of it"  # as at any end of an interpreter
    printed = "import ctypes; ctypes.CDLL(None).printf(b'from C\\n')"
    assert sys.platform == "win32" or leaving(f"{printed}; run._leave(0, at_once=True)") == ("from C\n", 0)
    threads = "import threading, time; threading.Thread(target=time.sleep, args=(100,)).start()"
    assert leaving(f"{told}; {threads}; run._leave(0, at_once=False)") == ("", 0)


def test_a_probe_waits_until_the_file_is_there(tmp_path):
    from kernelwright.probe import run

    file, passed = tmp_path / "go", []
    waiting = threading.Thread(target=lambda: (run._wait_for(str(file)), passed.append(file.exists())))
    waiting.start()
    time.sleep(0.1)
    assert passed == []
    file.touch()
    waiting.join(20)
    assert passed == [True]

"""The probe as a process by path, a request file in, result.json and recordings out; where what is imported matters, started afresh."""

import ast
import gzip
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kernelwright.model.capture import OpRecord, ProbeRequest, ProbeResult
from kernelwright.readers.lines import read_lines
from processes import soon
from warm_start import starter

ROOT = Path(__file__).resolve().parents[2]
START = ROOT / "src" / "kernelwright" / "probe" / "start.py"
WORKLOADS = ROOT / "tests" / "data" / "workloads"


def start(request, popen=subprocess.Popen):
    path = Path(request["out_dir"]) / "request.json"
    path.write_text(ProbeRequest.model_validate(request).model_dump_json(), encoding="utf-8")
    variables = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    return popen([sys.executable, str(START), "run", str(path)], env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def probe(out_dir, workload, action="event", *, version=None, params=None, popen=subprocess.Popen, **options):
    request = {"action": action, "workload": {"path": str(workload), "version": version, "params": params or {}}, "device": "cpu",
               "out_dir": str(out_dir), **options}
    process = start(request, popen)
    log, _ = process.communicate(timeout=240)
    assert (out_dir / "result.json").exists(), log
    result = ProbeResult.model_validate_json((out_dir / "result.json").read_text(encoding="utf-8"))
    assert process.returncode == (result.error.exit_code if result.error else 0), log
    assert [item.name for item in out_dir.iterdir() if item.name.startswith(".")] == []
    return result


def written(tmp_path, text, name="workload.py"):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def events(path):
    with gzip.open(path) as file:
        return json.load(file)["traceEvents"]


def test_event_of_a_model_with_parameters(tmp_path):
    result = probe(tmp_path, WORKLOADS / "mlp.py", params={"b": "16", "dtype": "float64"}, calibrate=True, popen=starter())
    facts, timing, work = result.facts, result.timing, result.work
    assert facts.params == {"b": 16, "width": 32, "dtype": "float64", "scale": 1.0, "bias": True, "note": "none"}
    assert (facts.inputs[0].shape, facts.inputs[0].path, facts.dtype) == ((16, 32), "", "float64")
    assert facts.parameter_count == 32 * 64 + 64 + 64 * 32 + 32
    assert timing.timer == "perf_counter" and len(timing.samples_ns) >= 10 and timing.host_ns == ()
    assert timing.warmup_calls >= 3 and timing.peak_memory_bytes is None
    assert work.flops == 2 * 2 * 16 * 32 * 64
    assert work.min_bytes == 8 * (2 * 16 * 32 + facts.parameter_count)
    assert result.environment.device == "cpu" and result.environment.cpu_threads == 1
    peaks = {peak.name: peak for peak in result.peaks}
    assert peaks["bandwidth"].unit == "GB/s" and peaks["bandwidth"].value > 0.1
    assert peaks["matmul:float32"].unit == "TFLOP/s" and peaks["matmul:float32"].value > 0.0005
    assert set(result.phases_s) >= {"import_torch", "load", "warmup", "time", "count", "calibrate"}
    assert result.trace_file is result.stacks_file is None and result.ops_file == "ops.json"


def test_annotation_leaves_steps_modules_stages_and_operators(tmp_path):
    result = probe(tmp_path, WORKLOADS / "mlp.py", "annotation", steps=3, popen=starter())
    timeline = events(tmp_path / result.trace_file)
    names = [event.get("name") for event in timeline]
    assert result.trace_steps == 3 and names.count("kernelwright.step") == 3 and names.count("stage:down") == 3
    assert names.count("aten::addmm") == 6
    assert not any(str(name).startswith("kernelwright.module:") for name in names)
    assert not any(event.get("cat") == "python_function" for event in timeline)
    document = json.loads(gzip.decompress((tmp_path / result.trace_file).read_bytes()))
    assert document["schemaVersion"] == 1 and document["displayTimeUnit"] == "ms", "what chrome://tracing and Perfetto open"
    assert all({"ph", "name", "pid", "tid"} <= set(event) for event in document["traceEvents"])
    assert all(event["ts"] >= 0 and event["dur"] >= 0 for event in document["traceEvents"] if event["ph"] == "X")
    stacks = events(tmp_path / result.stacks_file)
    names = [event.get("name") for event in stacks]
    assert names.count("kernelwright.step") == 1
    assert {"kernelwright.module:", "kernelwright.module:up", "kernelwright.module:down"} <= set(names)
    assert any("mlp.py" in str(name) for name in names)
    marked = [str(name) for name in names if str(name).startswith("kernelwright.line:")]
    assert marked and result.lines_file == "lines.json.gz"
    assert any(stack.source and stack.source.startswith("mlp.py:") for stack in read_lines(tmp_path / result.lines_file))
    up = next(event for event in stacks if event.get("name") == "kernelwright.module:up")
    inside = [event["name"] for event in stacks if event.get("cat") == "cpu_op"
              and up["ts"] <= event["ts"] and event["ts"] + event["dur"] <= up["ts"] + up["dur"]]
    assert "aten::linear" in inside
    records = [OpRecord.model_validate(record) for record in json.loads((tmp_path / result.ops_file).read_text(encoding="utf-8"))]
    assert sum(record.flops or 0 for record in records) == result.work.flops
    addmm = next(record for record in records if record.name == "aten::addmm")
    assert addmm.dims == ((64,), (8, 32), (32, 64)) and addmm.dtype == "float32"
    assert addmm.bytes == 4 * (64 + 8 * 32 + 32 * 64 + 8 * 64)
    assert result.timing.samples_ns


def test_an_event_run_imports_no_compiler(tmp_path):
    """torch._dynamo alone takes over a second to import; all that event mode adds must stay below two."""
    workload = written(tmp_path, """
import atexit, pathlib, sys, torch
atexit.register(lambda: pathlib.Path(__file__).with_suffix(".modules").write_text("\\n".join(sys.modules)))
def get_model_and_input():
    return torch.nn.Linear(8, 4), torch.randn(2, 8)
""")
    assert probe(tmp_path, workload).work.flops == 2 * 2 * 8 * 4
    loaded = (tmp_path / "workload.modules").read_text(encoding="utf-8").splitlines()
    assert "torch" in loaded and "kernelwright_probe.count" in loaded
    assert not {"torch._dynamo", "torch._inductor", "sympy"} & set(loaded)


def test_no_stacks_when_not_asked_for(tmp_path):
    result = probe(tmp_path, WORKLOADS / "nested.py", "annotation", steps=1, stacks=False, popen=starter())
    assert result.stacks_file is None and not (tmp_path / "trace_stacks.json.gz").exists()
    assert [spec.path for spec in result.facts.inputs] == ["x", "batch.parts.0", "batch.parts.1", "batch.mask"]
    assert [spec.path for spec in result.facts.outputs] == ["logits", "hidden.0", "hidden.1"]
    assert result.work.flops is None and "no operator" in result.work.flops_source


def test_training_step(tmp_path):
    result = probe(tmp_path, WORKLOADS / "training.py", "annotation", steps=1, stacks=False, popen=starter())
    assert result.facts.training
    names = {event.get("name") for event in events(tmp_path / result.trace_file)}
    assert any("Backward" in str(name) for name in names)
    forward = 2 * 8 * 16 * 4
    assert result.work.flops == 2 * forward  # forward and the weight's gradient; the input needs none
    assert "gradients" in result.work.bytes_source


def test_versions_use_their_own_figures(tmp_path):
    result = probe(tmp_path, WORKLOADS / "versions.py", version="v1", params={"s": "7"}, steps=12, warmup=4, popen=starter())
    assert (result.facts.form, result.facts.version, result.facts.versions) == ("versions", "v1", ("v1", "v2"))
    assert result.work.flops == 2 * 2 * 7 * 7 and result.work.flops_source == "workload flops()"
    assert result.work.min_bytes == 4 * (2 * 2 * 7 + 49) and result.work.bytes_source == "workload bytes_moved()"
    assert len(result.timing.samples_ns) == 12 and result.timing.warmup_calls == 4


def test_describe_measures_nothing(tmp_path):
    result = probe(tmp_path, WORKLOADS / "kernelbench.py", "describe", popen=starter())
    assert result.facts.form == "kernelbench" and [spec.path for spec in result.facts.inputs] == ["0", "1"]
    assert result.timing is None and result.work is None and result.environment is not None


def test_user_modules_named_like_ours_are_harmless(tmp_path):
    assert probe(tmp_path, WORKLOADS / "collisions" / "workload.py").status == "ok"


def test_compiled_workload_is_timed_and_counted(tmp_path):
    workload = written(tmp_path, """
import torch
def get_model_and_input():
    return torch.compile(torch.nn.Linear(8, 4), backend="eager"), torch.randn(2, 8)
""")
    result = probe(tmp_path, workload, "annotation", steps=1, popen=starter())
    assert result.facts.already_compiled and result.work.flops == 2 * 2 * 8 * 4
    assert result.ops_file is None and any("compiled" in warning for warning in result.warnings)


TO_COMPILE = """
import torch
def get_model_and_input():
    model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU(), torch.nn.Linear(4, 4))
    {compiled}
    return model, torch.randn(2, 8)
"""


@pytest.mark.parametrize("compiled", ["model = torch.compile(model, backend='eager')", "model.compile(backend='eager')",
                                      "model[0] = torch.compile(model[0], backend='eager')",
                                      "model.forward = torch.compile(model.forward, backend='eager')"])
def test_a_compiled_workload_is_recorded_without_its_compiler_when_asked(tmp_path, compiled):
    workload = written(tmp_path, TO_COMPILE.format(compiled=compiled))
    result = probe(tmp_path, workload, "annotation", steps=1, uncompiled=True, variation=True, popen=starter())
    assert result.facts.already_compiled and not result.facts.compiled_inside and result.ops_file is None
    assert not [warning for warning in result.warnings if "failed" in warning]
    folder = tmp_path / "uncompiled"
    plain = ProbeResult.model_validate_json((folder / "result.json").read_bytes())
    assert plain.timing.samples_ns and (folder / plain.trace_file).is_file() and not plain.facts.already_compiled
    names = [row["name"] for row in json.loads((folder / plain.ops_file).read_text())]
    assert [name for name in names if name in ("aten::addmm", "aten::relu")] == ["aten::addmm", "aten::relu", "aten::addmm"]
    assert plain.work.flops == result.work.flops == 2 * 2 * 4 * (8 + 4)
    traced = {event["name"] for event in events(folder / plain.trace_file)}
    assert {"aten::linear", "aten::addmm", "aten::relu"} <= traced and not any("Compiled" in name for name in traced)


@pytest.mark.parametrize(("alone", "says"), [
    ("time.sleep(2.5)", "was left out: without it a call takes 2.5 s"),
    ("raise ValueError('only compiled')", "failed: ValueError: only compiled")])
def test_a_model_that_is_slow_or_fails_without_its_compiler_keeps_its_own_profile(tmp_path, alone, says):
    workload = written(tmp_path, f"""
import time
import torch
class Net(torch.nn.Module):
    def forward(self, x):
        if not torch.compiler.is_compiling():
            {alone}
        return x + 1
def get_model_and_input():
    return torch.compile(Net(), backend="eager"), torch.randn(2, 8)
""")
    result = probe(tmp_path, workload, "annotation", steps=1, uncompiled=True, popen=starter())
    told = [warning for warning in result.warnings if warning.startswith("recording the workload without its own torch.compile ")]
    assert len(told) == 1 and says in told[0]
    assert result.timing.samples_ns and result.facts.already_compiled and not (tmp_path / "uncompiled").exists()


def test_a_generation_loop_is_found_although_what_it_runs_is_compiled(tmp_path):
    workload = written(tmp_path, f"""
import torch, sys
sys.path.insert(0, {str(ROOT / "tests" / "data" / "dynamic")!r})
import generate
def get_model_and_input():
    model, tokens = generate.get_model_and_input(steps=8, stop=1)
    model.decoder = torch.compile(model.decoder, backend="eager", dynamic=True)
    return model, tokens
""")
    result = probe(tmp_path, workload, "annotation", steps=1, uncompiled=True, variation=True, popen=starter())
    assert result.facts.already_compiled and (result.facts.loop.module, result.facts.loop.calls) == ("decoder", 8)
    assert result.facts.loop.grows == (4, 11) and result.facts.loop.reads == 8


def test_nothing_is_recorded_twice_where_nothing_can_be_taken_off(tmp_path):
    probe(tmp_path, WORKLOADS / "mlp.py", "annotation", steps=1, uncompiled=True, popen=starter())
    assert not (tmp_path / "uncompiled").exists()
    compiled = written(tmp_path, TO_COMPILE.format(compiled="model.compile(backend='eager')"))
    probe(tmp_path, compiled, "describe", uncompiled=True, popen=starter())  # as for a calibration after the profile
    assert not (tmp_path / "uncompiled").exists()


def test_a_failing_workload_leaves_its_line_and_a_fix(tmp_path):
    workload = written(tmp_path, """
import torch
def get_model_and_input():
    return abs, torch.ones(1).cuda()
""")
    error = probe(tmp_path, workload).error  # no fork: a torch built for CUDA complains of that first
    assert (error.code, error.exit_code) == ("no_cuda", 3)
    assert error.where == f"{workload}:4" and error.fix and "get_model_and_input" in error.traceback


def test_unavailable_cuda(tmp_path):
    request = {"action": "describe", "workload": {"path": str(WORKLOADS / "mlp.py")}, "device": "cuda", "out_dir": str(tmp_path)}
    assert start(request, starter()).wait(timeout=120) == 3
    error = ProbeResult.model_validate_json((tmp_path / "result.json").read_text(encoding="utf-8")).error
    assert error.code == "no_cuda" and "--device cpu" in error.fix


def test_a_thread_of_the_workload_does_not_keep_the_probe(tmp_path):
    workload = written(tmp_path, """
import threading, time, torch
threading.Thread(target=time.sleep, args=(600,)).start()
def get_model_and_input():
    return torch.nn.ReLU(), torch.ones(3)
""")
    begin = time.monotonic()
    assert probe(tmp_path, workload, "describe", popen=starter()).status == "ok"
    assert time.monotonic() - begin < 120


def test_interrupt_leaves_a_result_and_ends_130(tmp_path):
    workload = written(tmp_path, f"""
import pathlib, time
pathlib.Path({str(tmp_path / 'started')!r}).touch()
time.sleep(600)
""")
    process = start({"action": "describe", "workload": {"path": str(workload)}, "device": "cpu", "out_dir": str(tmp_path)})
    assert soon(lambda: (tmp_path / "started").exists() or process.poll() is not None, 120) and process.poll() is None
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 130
    assert ProbeResult.model_validate_json((tmp_path / "result.json").read_text(encoding="utf-8")).error.code == "interrupted"


def test_bad_usage():
    assert subprocess.run([sys.executable, str(START)], capture_output=True, check=False).returncode == 2
    assert subprocess.run([sys.executable, str(START), "run", "/no/such/request"], capture_output=True, check=False).returncode == 2


def test_the_probe_imports_torch_and_the_standard_library_alone():
    allowed = set(sys.stdlib_module_names) | {"torch"}
    for path in (ROOT / "src" / "kernelwright" / "probe").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module]
            assert {name.split(".")[0] for name in names} <= allowed, path.name

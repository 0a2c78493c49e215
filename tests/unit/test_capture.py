"""Interpreter search, the one-at-a-time lock, process groups, and what a dead probe becomes."""

import json
import os
import stat
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from kernelwright.capture import interpreter as interpreters
from kernelwright.capture import process as processes
from kernelwright.capture.calibration import load_peaks, store_peaks
from kernelwright.capture.interpreter import Interpreter, find_interpreter, gpu_visible
from kernelwright.capture.lock import device_lock, holder
from kernelwright.capture.run import read_result, run_probe
from kernelwright.model.capture import ProbePeak, ProbeRequest, ProbeWorkload
from kernelwright.model.errors import BadInput, Interrupted, MachineLacks, WorkloadFailed
from kernelwright.probe import calibrate, without_compile
from kernelwright.probe.run import Session
from processes import gone
from warm_start import warm_start


def with_ours() -> dict[str, str]:
    """An environment in which a plain interpreter finds kernelwright."""
    return {**os.environ, "PYTHONPATH": str(Path(processes.__file__).parents[2])}


def fake_python(folder: Path, answer: str) -> Path:
    """An executable that answers the torch check with `answer`."""
    path = folder / "bin" / "python"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\necho {answer}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.fixture
def bare(monkeypatch, tmp_path):
    """No environment variable and no python3 on the PATH leads to a torch, and no GPU."""
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX", "KERNELWRIGHT_STARTED_BY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(interpreters.shutil, "which", lambda name: None)
    monkeypatch.setattr(interpreters, "gpu_visible", lambda _patience_s: False)
    monkeypatch.setattr(interpreters.sys, "executable", str(fake_python(tmp_path / "own", "NONE")))
    return tmp_path


def test_the_first_with_torch_wins_in_the_documented_order(bare, monkeypatch):
    monkeypatch.setenv("VIRTUAL_ENV", str(fake_python(bare / "v", "NONE").parents[1]))
    monkeypatch.setenv("CONDA_PREFIX", str(fake_python(bare / "c", "TORCH 2.9.0 12.8").parents[1]))
    fake_python(bare / "project" / ".venv", "TORCH 2.8.0 cpu")
    workload = bare / "project" / "deep" / "w.py"
    assert find_interpreter(None, workload, "auto").source == "CONDA_PREFIX"
    monkeypatch.delenv("CONDA_PREFIX")
    found = find_interpreter(None, workload, "auto")
    assert (found.source, found.torch_version, found.torch_build) == (".venv", "2.8.0", "cpu")


def test_the_python_that_the_script_was_started_with_comes_before_the_paths_and_not_where_it_is_our_own(bare, monkeypatch):
    on_path = fake_python(bare / "p", "TORCH 2.7.0 cpu")
    monkeypatch.setattr(interpreters.shutil, "which", lambda name: str(on_path) if name == "python3" else None)
    monkeypatch.setenv("KERNELWRIGHT_STARTED_BY", str(fake_python(bare / "s", "TORCH 2.8.0 cpu")))
    found = find_interpreter(None, None, "cpu")
    assert (found.source, found.torch_version) == ("the script's Python", "2.8.0")
    for name in ("python", "python3"):
        monkeypatch.setenv("KERNELWRIGHT_STARTED_BY", str(Path(interpreters.sys.executable).with_name(name)))
        assert find_interpreter(None, None, "cpu").source == "python3"


def test_a_gpu_with_a_cpu_only_torch_is_refused_unless_the_cpu_was_asked_for(bare, monkeypatch):
    monkeypatch.setenv("VIRTUAL_ENV", str(fake_python(bare / "v", "TORCH 2.9.0 cpu").parents[1]))
    monkeypatch.setattr(interpreters, "gpu_visible", lambda _patience_s: True)
    with pytest.raises(MachineLacks, match="CPU-only") as caught:
        find_interpreter(None, None, "auto")
    assert "--device cpu" in caught.value.fix
    assert find_interpreter(None, None, "cpu").torch_build == "cpu"


def test_a_gpu_and_no_torch_is_refused(bare, monkeypatch):
    monkeypatch.setattr(interpreters, "gpu_visible", lambda _patience_s: True)
    with pytest.raises(MachineLacks, match="no Python here has torch"):
        find_interpreter(None, None, "auto")


@pytest.mark.parametrize(("answer", "says"), [("NONE", "has no torch"), ("OLD 3.8", "3.10 is needed"), ("", "not a working")])
def test_a_named_interpreter_that_will_not_do_is_bad_input(bare, answer, says):
    with pytest.raises(BadInput, match=says):
        find_interpreter(str(fake_python(bare / "n", answer)), None, "auto")
    with pytest.raises(BadInput, match="could not be run"):
        find_interpreter(str(bare / "nowhere"), None, "auto")


def test_hidden_gpus_are_not_visible(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert gpu_visible() is False


@pytest.mark.parametrize("body", ["sleep 30", "printf '\\377\\300GP'", "exit 9"])
def test_an_nvidia_smi_that_hangs_fails_or_babbles_shows_no_gpu(tmp_path, monkeypatch, body):
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\n{body}\n")
    tool.chmod(0o755)
    monkeypatch.setattr(interpreters, "Path", lambda _place: tmp_path / "none")  # the driver's own files, on a machine with a GPU
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    start = time.monotonic()
    assert gpu_visible(0.3) is False and time.monotonic() - start < 20
    tool.write_text("#!/bin/sh\necho 'GPU 0: NVIDIA L4 (UUID: GPU-1)'\n")
    assert gpu_visible(20) is True


def test_who_waits_is_told_when_times_are_taken_and_when_no_longer(tmp_path):
    (tmp_path / "w.py").write_text(textwrap.dedent("""
        import pathlib, torch
        here, times = pathlib.Path(__file__).parent, []

        class Model(torch.nn.Module):
            def forward(self, x):
                times.append((here / "measuring").exists())
                (here / "seen").write_text(repr(times))
                return x + 1

        def get_inputs(): return [torch.ones(4)]
    """))
    said = []
    request = ProbeRequest(action="event", workload=ProbeWorkload(path=str(tmp_path / "w.py")), device="cpu", steps=3, variation=True,
                           out_dir=str(tmp_path), measuring=str(tmp_path / "measuring"))
    (tmp_path / "measuring").touch()  # of a run that was killed
    with warm_start():
        result = run_probe(request, find_interpreter(sys.executable, None, "cpu"), cwd=tmp_path, timeout_s=60, when_measuring=said.append)
    seen = json.loads((tmp_path / "seen").read_text().lower())
    assert result.status == "ok" and said == [True, False] and not (tmp_path / "measuring").exists()
    timed = slice(seen.index(True), len(seen) - seen[::-1].index(True))
    assert seen[0] is False and all(seen[timed]) and len(seen[timed]) > 2, "the first call is part of loading"
    assert timed.stop < len(seen), "variation calls it too, and nothing is timed then"


def test_who_waits_is_told_that_nothing_is_measured_any_more_where_the_process_dies_at_it(tmp_path):
    (tmp_path / "w.py").write_text(textwrap.dedent("""
        import os, pathlib, time, torch
        there = pathlib.Path(__file__).with_name("measuring")

        def dies(x):
            if there.exists():
                time.sleep(0.3)  # it is seen
                os._exit(3)
            return x

        VERSIONS = {"v1": dies}
        def get_inputs(): return [torch.ones(4)]
    """))
    said = []
    request = ProbeRequest(action="event", workload=ProbeWorkload(path=str(tmp_path / "w.py")), device="cpu",
                           out_dir=str(tmp_path), measuring=str(tmp_path / "measuring"))
    with warm_start(), pytest.raises(WorkloadFailed, match="ended with status 3"):
        run_probe(request, find_interpreter(sys.executable, None, "cpu"), cwd=tmp_path, timeout_s=60, when_measuring=said.append)
    assert said == [True, False] and not (tmp_path / "measuring").exists()


def test_calibrations_and_the_run_without_torch_compile_are_measured_too(tmp_path, monkeypatch):
    (tmp_path / "w.py").write_text("import torch\nVERSIONS = {'v1': torch.relu}\ndef get_inputs(): return [torch.ones(4)]\n")
    seen, marker = {}, tmp_path / "measuring"
    monkeypatch.setattr(calibrate, "peaks", lambda _device: (seen.update(peaks=marker.exists()), ([], []))[1])
    monkeypatch.setattr(without_compile, "record", lambda *_: seen.update(plain=marker.exists()))
    session = Session({"action": "annotation", "workload": {"path": str(tmp_path / "w.py")}, "device": "cpu", "out_dir": str(tmp_path),
                       "calibrate": True, "uncompiled": True, "measuring": str(marker)})
    monkeypatch.setattr(session, "_measure", lambda *_: seen.update(between=marker.exists()))
    session._run()
    assert seen == {"between": False, "plain": True, "peaks": True} and not marker.exists()


def test_a_workload_that_was_interrupted_is_exit_130(tmp_path):
    error = {"code": "interrupted", "message": "interrupted", "where": "/w.py:3", "fix": "again", "exit_code": 130, "traceback": ""}
    (tmp_path / "result.json").write_text(json.dumps({"status": "error", "error": error}))
    request = ProbeRequest(action="event", workload=ProbeWorkload(path="/w.py"), device="cpu", out_dir=str(tmp_path))
    with pytest.raises(Interrupted) as caught:
        read_result(tmp_path / "result.json", 130, tmp_path / "workload.log", request)
    assert (caught.value.exit_code, caught.value.code, caught.value.where) == (130, "interrupted", "/w.py:3")


def test_the_lock_lets_one_in_at_a_time_and_says_who_holds_it(monkeypatch, tmp_path):
    monkeypatch.setenv("KERNELWRIGHT_LOCK", str(tmp_path / "lock"))
    order = tmp_path / "order"
    code = textwrap.dedent(f"""
        import sys, time
        from kernelwright.capture.lock import device_lock
        with device_lock("profile " + sys.argv[1]):
            with open({str(order)!r}, "a") as f: f.write("in "); f.flush(); time.sleep(0.2); f.write("out "); f.flush()
    """)
    with device_lock("profile first"):
        assert (holder() or {})["what"] == "profile first"
        others = [subprocess.Popen([sys.executable, "-c", code, str(i)], env=with_ours()) for i in range(3)]
        time.sleep(0.5)
        assert not order.exists()
    assert [other.wait(30) for other in others] == [0, 0, 0]
    assert order.read_text().split() == ["in", "out"] * 3
    assert holder() is None


def test_a_killed_holder_frees_the_lock(monkeypatch, tmp_path):
    monkeypatch.setenv("KERNELWRIGHT_LOCK", str(tmp_path / "lock"))
    code = ("import time\nfrom kernelwright.capture.lock import device_lock\n"
            "with device_lock('x'):\n  print('held', flush=True)\n  time.sleep(60)")
    other = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=with_ours())
    assert other.stdout is not None and other.stdout.readline() == b"held\n"
    other.kill()
    other.wait()
    told: list[str] = []
    with device_lock("mine", told.append):
        assert told == []


@pytest.fixture
def stand_in(monkeypatch, tmp_path):
    """Replaces the probe by a script; gives a function that runs it."""
    def run(code: str, timeout_s: float | None = 30):
        script = tmp_path / "probe.py"
        script.write_text(textwrap.dedent(code))
        monkeypatch.setattr(processes, "PROBE_START", script)
        workload, raw = ProbeWorkload(path="/w.py"), str(tmp_path / "raw")
        request = ProbeRequest(action="event", workload=workload, device="cpu", out_dir=raw)
        interpreter = Interpreter(Path(sys.executable), "2.13.0", "cpu", "test")
        return run_probe(request, interpreter, cwd=tmp_path, timeout_s=timeout_s)
    return run


def test_a_probe_that_dies_is_a_failed_workload_with_its_last_words(stand_in):
    with pytest.raises(WorkloadFailed, match=r"status 7.*last words: the end is near"):
        stand_in("print('the end is near'); raise SystemExit(7)")
    with pytest.raises(WorkloadFailed, match="killed by signal 9"):
        stand_in("import os; os.kill(os.getpid(), 9)")


def test_an_error_result_keeps_its_code_place_and_mend(stand_in):
    with pytest.raises(BadInput) as caught:
        stand_in("""
            import json, sys, os
            out = json.load(open(sys.argv[2]))["out_dir"]
            error = dict(code="no_entry_point", message="has no entry point", where="/w.py", fix="add one", exit_code=2)
            json.dump(dict(status="error", error=error), open(os.path.join(out, "result.json"), "w"))
        """)
    assert caught.value.as_dict() == {"code": "no_entry_point", "message": "has no entry point", "where": "/w.py", "fix": "add one"}


def test_an_endless_workload_ends_with_its_children(stand_in, tmp_path):
    with pytest.raises(WorkloadFailed, match="did not finish within 4"):
        stand_in(f"""
            import subprocess, sys, time, signal
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
            open({str(tmp_path / "child")!r}, "w").write(str(child.pid))
            time.sleep(60)
        """, timeout_s=4)
    assert gone([int((tmp_path / "child").read_text())]), "a child of the workload still runs"


def test_the_cpu_run_hides_cuda_and_keeps_the_users_path(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/theirs")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert processes.probe_environment("cpu")["CUDA_VISIBLE_DEVICES"] == ""
    assert processes.probe_environment("auto")["CUDA_VISIBLE_DEVICES"] == "1"
    assert processes.probe_environment("auto")["PYTHONPATH"] == "/theirs"


def test_peaks_are_kept_and_a_broken_cache_is_no_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("KERNELWRIGHT_CACHE", str(tmp_path))
    peak = ProbePeak(name="bandwidth", value=20.0, unit="GB/s", method="copy")
    assert load_peaks("a") == ()
    store_peaks("a", "GPU 1", [peak])
    assert load_peaks("a") == (), "a set without a compute peak was kept"
    peaks = (peak, ProbePeak(name="matmul:float32", value=0.1, unit="TFLOP/s", method="matmul"))
    store_peaks("a", "GPU 1", peaks)
    assert load_peaks("a") == load_peaks("a", "GPU 1") == peaks and load_peaks("b") == ()
    assert load_peaks("a", "GPU 2") == (), "another device's peaks were taken for this one's"
    next((tmp_path / "peaks").iterdir()).write_text("{")
    assert load_peaks("a") == ()
    assert os.path.isdir(tmp_path / "peaks")

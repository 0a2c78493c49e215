"""The scripts with a stand-in GPU: however a run ends, its clocks are reset within two seconds; the shell scripts; what reports say."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kernelwright.capture.clockguard import leases
from kernelwright.capture.gpu_users import _parent
from kernelwright.cli.main import main
from processes import gone, soon
from stand_in_gpu import ROOT, UUID, StandIn

RESET_WITHIN_S = 2.0
WORKLOAD = """
import pathlib, time, torch

class Slow(torch.nn.Module):
    def forward(self, x):
        pathlib.Path(__file__).with_name("running").touch()
        time.sleep(0.1)
        return x + 1

def get_model_and_input():
    return Slow(), torch.ones(4)
"""


@pytest.fixture
def gpu(tmp_path) -> StandIn:
    return StandIn(tmp_path)


def start(gpu: StandIn, *options: str, fails: bool = False, **variables: str) -> subprocess.Popen[str]:
    """profile_kernel.py on its own, in a process group of its own. fails: with a workload that ends the run right after the lock."""
    file = gpu.folder / "slow.py"
    file.write_text("raise ValueError('on purpose')" if fails else WORKLOAD)
    command = [sys.executable, str(ROOT / "scripts" / "profile_kernel.py"), str(file), "--mode", "event", "--python", sys.executable,
               "--warmup", "1", *options]
    variables = {"KERNELWRIGHT_CACHE": os.environ["KERNELWRIGHT_CACHE"], **variables}  # the CPU's peaks are measured once
    return subprocess.Popen(command, cwd=gpu.folder, env=gpu.environment(**variables), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True, start_new_session=True, preexec_fn=_hears_interrupts)


def _hears_interrupts() -> None:
    """A shell starts its background jobs, this test run maybe among them, deaf to SIGINT."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def script(gpu: StandIn, *argv: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "scripts" / argv[0])] if argv[0].endswith(".py") else [str(ROOT / "scripts" / argv[0])]
    environment = gpu.environment(PYTHON=sys.executable, **variables)
    return subprocess.run([*command, *argv[1:]], cwd=gpu.folder, env=environment, capture_output=True, text=True, timeout=120)


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate(timeout=60)


def took(gpu: StandIn, since: float) -> float:
    """Seconds from `since` to the reset, by the stand-in's own journal."""
    gpu.wait(None, within_s=20)
    return float([row["time"] for row in gpu.journal() if row["call"] == "reset"][-1]) - since


def children(pid: int) -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit() and _parent(int(entry.name)) == pid]


def watchdogs_of(process: subprocess.Popen[str]) -> list[int]:
    found = []
    for pid in children(process.pid):
        with contextlib.suppress(OSError):  # it may be gone by now
            if b"clockguard" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    return found


@pytest.fixture
def preflight(gpu):
    """The stand-in is what these processes import and start, before any of them may change a clock."""
    code = "import pynvml, shutil; print(pynvml.__file__); print(shutil.which('nvidia-smi')); print(shutil.which('sudo'))"
    done = subprocess.run([sys.executable, "-c", code], env=gpu.environment(), capture_output=True, text=True, check=True)
    assert len(done.stdout.split()) == 3 and all("stand_ins" in line for line in done.stdout.split())


def test_sigkill_while_the_workload_runs_resets_within_two_seconds(gpu, preflight):
    process = start(gpu, "--clocks", "1500", "--steps", "1000")
    try:
        gpu.wait(1500)
        assert soon(lambda: (gpu.folder / "running").exists() or process.poll() is not None, 120) and process.poll() is None
        since = time.time()
        process.kill()
        assert took(gpu, since) < RESET_WITHIN_S
        assert gone([int(gpu.journal()[-1]["pid"])])  # the watchdog leaves too
    finally:
        end(process)
    assert list((gpu.folder / "state" / "clocks").glob("*.json")) == []


@pytest.mark.parametrize("how", ["group", "SIGTERM", "SIGINT", "watchdog first", "stopped watchdog"])
def test_however_it_is_ended_the_clocks_are_reset(gpu, preflight, how):
    process = start(gpu, "--clocks", "1500", "--steps", "1000")
    try:
        gpu.wait(1500)
        watchdogs = watchdogs_of(process)
        assert len(watchdogs) == 1
        since = time.time()
        if how == "group":
            os.killpg(process.pid, signal.SIGKILL)
        elif how == "watchdog first":
            os.kill(watchdogs[0], signal.SIGKILL)
            process.terminate()
        elif how == "stopped watchdog":
            os.kill(watchdogs[0], signal.SIGTERM)
            process.kill()
        else:
            process.send_signal(getattr(signal, how))
        assert took(gpu, since) < RESET_WITHIN_S
        code = process.wait(60)
        assert code == (-signal.SIGKILL if how in ("group", "stopped watchdog") else 130)
    finally:
        end(process)


def test_a_locked_profile_says_so_everywhere_and_warns_of_others(gpu, preflight):
    gpu.set(processes=[[os.getpid(), 7 * 2**20]])
    process = start(gpu, "--clocks", "1500", "--steps", "10", "--json")
    out, err = process.communicate(timeout=200)
    assert process.returncode == 0, err
    folder = Path(json.loads(out)["out_dir"])
    clocks = json.loads((folder / "params.json").read_text())["clocks"]
    assert clocks["locked"] is True and clocks["locked_mhz"] == 1500 and clocks["sm_mhz_min"] == 1500 and clocks["samples"] >= 3
    report = (folder / "report.md").read_text()
    assert "locked at 1500 MHz (asked for: 1500)" in report and "61 °C, 512 W" in report
    assert f"process {os.getpid()}, 7 MiB" in report.partition("## Warnings")[2]
    assert gpu.calls() == ["set", "reset"] and gpu.gpu()["locked"] is None
    added = script(gpu, "devlog.py", "add", str(folder))
    assert ", locked clocks, " in added.stdout


def test_a_project_file_asks_a_flag_wins_and_the_machine_has_the_last_word(gpu, preflight, monkeypatch, capsys):
    (gpu.folder / "kernelwright.yaml").write_text("clocks: 1500\nkernels:\n  slow: {file: slow.py}\n")
    process = start(gpu, fails=True)
    process.communicate(timeout=200)
    assert process.returncode == 4 and gpu.calls() == ["set", "reset"]
    process = start(gpu, "--clocks", "none", fails=True)
    process.communicate(timeout=200)
    assert process.returncode == 4 and gpu.calls() == ["set", "reset"]
    (gpu.folder / "kernelwright.yaml").write_text("clocks: fast\nkernels:\n  slow: {file: slow.py}\n")
    monkeypatch.chdir(gpu.folder)
    code, (out, err) = main(["profile_kernel", "slow.py", "--mode", "event", "--python", sys.executable]), capsys.readouterr()
    assert (code, out) == (2, "") and len(err.splitlines()) == 1 and "`clocks:`" in err


def test_a_wrong_value_is_one_line_and_exit_2(tmp_path, monkeypatch, capsys):
    (tmp_path / "slow.py").write_text(WORKLOAD)
    monkeypatch.chdir(tmp_path)
    code, (out, err) = main(["profile_kernel", "slow.py", "--clocks", "fast"]), capsys.readouterr()
    assert (code, out) == (2, "") and len(err.splitlines()) == 1 and "'fast' is not none, lock or a number of MHz" in err


def test_with_the_machines_none_nothing_is_ever_changed(gpu, preflight):
    """Profile, judge and both shell scripts, whatever their flags; a stale record is left alone too."""
    forbidden = {"KERNELWRIGHT_CLOCKS": "none"}
    records = gpu.folder / "state" / "clocks"
    records.mkdir(parents=True, exist_ok=True)
    stale = {"uuid": UUID, "mhz": 1500, "route": [], "boot": leases.boot_id(), "since": "",
             "leases": [{"token": "t", "pid": 2**22 + 1, "start": "1"}]}
    (records / f"{UUID}.json").write_text(json.dumps(stale))
    for name, *argv in (("lock-gpu-clock.sh", "1500"), ("lock-gpu-clock.sh",), ("reset-gpu-clock.sh",), ("reset-gpu-clock.sh", "--force")):
        done = script(gpu, name, *argv, **forbidden)
        assert done.returncode == 3 and "KERNELWRIGHT_CLOCKS=none" in done.stderr and len(done.stderr.splitlines()) == 1
    process = start(gpu, "--clocks", "lock", "--steps", "2", "--json", **forbidden)
    out, err = process.communicate(timeout=200)
    assert process.returncode == 0, err
    report = (Path(json.loads(out)["out_dir"]) / "report.md").read_text()
    assert "KERNELWRIGHT_CLOCKS=none" in report and "not locked (asked for: lock)" in report
    assert gpu.journal() == [] and (records / f"{UUID}.json").exists()


def test_the_shell_scripts_lock_until_they_reset(gpu, preflight):
    done = script(gpu, "lock-gpu-clock.sh", "1500")
    assert done.returncode == 0 and "until it is reset" in done.stdout and gpu.gpu()["locked"] == 1500
    time.sleep(0.6)
    assert gpu.gpu()["locked"] == 1500, "a lock by hand outlives its process"
    process = start(gpu, "--clocks", "lock", "--steps", "10", "--json")
    out, err = process.communicate(timeout=200)
    assert process.returncode == 0, err
    clocks = json.loads((Path(json.loads(out)["out_dir"]) / "params.json").read_text())["clocks"]
    assert clocks["locked"] and "by hand" in clocks["note"] and gpu.calls() == ["set"]
    done = script(gpu, "reset-gpu-clock.sh", "--json")
    assert done.returncode == 0 and json.loads(done.stdout)["reset"] is True and gpu.gpu()["locked"] is None
    again = script(gpu, "reset-gpu-clock.sh")
    assert again.returncode == 0 and "nothing to reset" in again.stdout and gpu.calls() == ["set", "reset"]


def test_the_shell_scripts_say_what_is_refused(gpu, preflight):
    gpu.set(permit=False)
    done = script(gpu, "lock-gpu-clock.sh", "1500", "--json")
    error = json.loads(done.stdout)["error"]
    assert done.returncode == 3 and error["code"] == "clocks_refused" and "root" in error["message"] and "sudo" in error["fix"]
    assert script(gpu, "lock-gpu-clock.sh", "fast").returncode == 2
    hidden = script(gpu, "lock-gpu-clock.sh", "1500", CUDA_VISIBLE_DEVICES="")
    assert hidden.returncode == 3 and "hides" in hidden.stderr


def test_a_judgement_is_locked_once_and_its_verdict_says_so(gpu, preflight):
    data = ROOT / "tests" / "data" / "judge"
    done = script(gpu, "judge.py", str(data / "wide.py"), str(data / "wide" / "tuple_output.py"), "--clocks", "1500", "--json")
    assert done.returncode == 5, done.stderr
    folder = Path(json.loads(done.stdout)["out_dir"])
    clocks = json.loads((folder / "verdict.json").read_text())["clocks"]
    assert clocks["locked"] and clocks["locked_mhz"] == 1500 and "locked at 1500 MHz" in (folder / "verdict.md").read_text()
    assert gpu.calls() == ["set", "reset"]


def test_the_clock_is_found_under_a_real_load(gpu, preflight):
    """The probe's own matrix product, in the workload's interpreter; the stand-in throttles above 1700 MHz."""
    gpu.gpu(capable=1700)
    process = start(gpu, "--clocks", "lock", fails=True, KERNELWRIGHT_CACHE=str(gpu.folder / "cache"))
    _, err = process.communicate(timeout=200)
    assert process.returncode == 4 and "finding the clock that Stand-in GPU holds under load" in err
    assert [row.get("mhz", [None])[0] for row in gpu.journal()] == [1980, 1695, None]

"""Annotation with counters on a real GPU with ncu: how much of the time has counters, and what they agree on with the timeline."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import torch

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU is visible")]

ROOT = Path(__file__).resolve().parents[2]
CASES = [("conv_block", None, "eager"), ("gpt2", None, "inductor"), ("lstm_sequence_encoder", None, "eager"),
         ("sdpa_attention", None, "eager"),
         ("triton_softmax", "v2", "eager"), ("train_mlp_step", None, "eager"), ("mlp_activations", None, "cudagraphs")]


def profiled(out, example, version, mode, *more, env=None):
    command = [sys.executable, "-m", "kernelwright", "profile_kernel", str(ROOT / "examples" / f"{example}.py"),
               *([version] if version else []), "--json", "--python", sys.executable, "--compile-mode", mode, "--steps", "2",
               "--out", str(out), *more]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), **(env or {})}
    done = subprocess.run(command, capture_output=True, text=True, cwd=out.parent, timeout=400, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads((out / "profile.json").read_text()), done.stderr


@pytest.mark.parametrize(("example", "version", "mode"), CASES, ids=[f"{name}-{mode}" for name, _, mode in CASES])
def test_counters_on_nearly_all_kernel_time(tmp_path, example, version, mode):
    document, said = profiled(tmp_path / "out", example, version, mode)
    counters, line = document["counters"], document["timeline"]
    assert counters is not None, document["no_counters"]
    assert counters["time_share_pct"] >= 95.0 and "no counters" not in said
    assert line["attributed_ns"] >= 0.99 * line["measured_ns"]
    print(f"\n{example} {mode}: {counters['launches_measured']} of {counters['launches']} launches, {counters['passes']} passes, "
          f"{counters['seconds']} s, {counters['time_share_pct']:.1f}%")
    assert counters["disagreements"] == [], json.dumps(counters["disagreements"], indent=1)
    kernels = [kernel for operator in document["operators"] for kernel in operator["kernels"] if kernel["category"] == "kernel"]
    carrying = [kernel for kernel in kernels if kernel["metrics"]["raw"]]
    share = sum(kernel["duration_ns"] for kernel in carrying) / sum(kernel["duration_ns"] for kernel in kernels)
    assert share == pytest.approx(counters["time_share_pct"] / 100, abs=0.01)
    assert {kernel["metrics"]["origin"] for kernel in carrying} <= {"measured", "propagated"}
    assert any(kernel["metrics"]["origin"] == "measured" for kernel in carrying)
    assert (tmp_path / "out" / "raw" / "counters.ncu-rep").is_file()
    heaviest = max(document["stages"], key=lambda stage: stage["duration_ns"])
    assert heaviest["dram_pct"] is not None and heaviest["occupancy_pct"] is not None


def test_a_secret_is_not_in_the_report(tmp_path):
    planted = {"PLANTED_TOKEN": "s3cret-planted-value", "TORCH_API_KEY": "s3cret-planted-value"}
    profiled(tmp_path / "out", "mlp_activations", None, "eager", env=planted)
    assert (tmp_path / "out" / "raw" / "counters.ncu-rep").is_file()
    for file in (tmp_path / "out" / "raw").rglob("*"):
        assert not file.is_file() or b"s3cret-planted-value" not in file.read_bytes(), file


def test_a_budget_replays_less(tmp_path):
    document, _ = profiled(tmp_path / "out", "conv_block", None, "eager", "--ncu-budget", "1s")
    assert document["counters"]["budget_s"] == 1.0 and 0 < document["counters"]["launches_measured"] <= 3


def test_a_user_without_rights_gets_a_profile_and_the_reason():
    """Where the driver keeps counters for administrators; elsewhere nobody is denied."""
    setpriv = shutil.which("setpriv")
    params = Path("/proc/driver/nvidia/params")
    if os.geteuid() != 0 or setpriv is None or "RmProfilingAdminOnly: 1" not in params.read_text():
        pytest.skip("nobody is denied here, or nobody can be asked as")
    place = Path(tempfile.mkdtemp(prefix="denied-"))  # pytest's own folders are closed to others
    shutil.copytree(ROOT / "src", place / "src")
    for folder in ("examples", "templates", "knowledge"):
        shutil.copytree(ROOT / folder, place / folder)
    for path in (place, *place.rglob("*")):
        path.chmod(0o777 if path.is_dir() else 0o666)
    command = [setpriv, "--reuid=65534", "--regid=65534", "--clear-groups", sys.executable, "-m", "kernelwright", "profile_kernel",
               str(place / "examples" / "mlp_activations.py"), "--json", "--python", sys.executable, "--out", str(place / "out")]
    env = {"PATH": os.environ["PATH"], "HOME": str(place), "TMPDIR": str(place), "PYTHONPATH": str(place / "src"),
           "LD_LIBRARY_PATH": os.environ.get("LD_LIBRARY_PATH", ""), "KERNELWRIGHT_CLOCKS": "none",
           "KERNELWRIGHT_LOCK": str(place / "lock"), "KERNELWRIGHT_STATE": str(place / "state")}
    done = subprocess.run(command, capture_output=True, text=True, cwd=place, timeout=300, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads((place / "out" / "profile.json").read_text())
    assert document["counters"] is None and document["no_counters"]["code"] == "counters_denied" and document["no_counters"]["fix"]
    assert done.stderr.count("no counters: ") == 1 and document["operators"]
    shutil.rmtree(place)

"""Clocks on a real GPU: watched only. Nothing here locks or resets a real clock; KERNELWRIGHT_CLOCKS=none holds throughout."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from kernelwright.capture import gpus
from kernelwright.capture.clocks.finding import supported_mhz
from kernelwright.capture.gpu_users import gpu_users

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU is visible")]

ROOT = Path(__file__).resolve().parents[2]


def test_the_gpu_that_is_watched_is_cuda_device_0():
    with gpus.nvml() as binding:
        found = gpus.first_visible(binding)
        highest = supported_mhz(binding, found)[0]
        assert highest >= int(binding.nvmlDeviceGetClockInfo(found.handle, binding.NVML_CLOCK_SM))
    properties = torch.cuda.get_device_properties(0)
    assert found.name == torch.cuda.get_device_name(0)
    assert found.uuid.removeprefix("GPU-") == str(properties.uuid)


def test_a_run_that_asks_for_a_lock_where_it_is_forbidden_watches_only(tmp_path):
    environment = {**os.environ, "KERNELWRIGHT_CLOCKS": "none", "KERNELWRIGHT_STATE": str(tmp_path / "state")}
    command = [sys.executable, str(ROOT / "scripts" / "profile_kernel.py"), str(ROOT / "examples" / "embedding_projection.py")]
    done = subprocess.run([*command, "--clocks", "lock", "--python", sys.executable, "--json"], cwd=tmp_path, env=environment,
                          capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    clocks = json.loads((Path(json.loads(done.stdout)["out_dir"]) / "params.json").read_text())["clocks"]
    assert clocks["locked"] is False and clocks["locked_mhz"] is None and "KERNELWRIGHT_CLOCKS=none" in clocks["note"]
    assert clocks["samples"] > 0 and clocks["sm_mhz_max"] >= clocks["sm_mhz_median"] >= clocks["sm_mhz_min"] > 0
    assert clocks["temperature_c_max"] > 0 and clocks["power_w_max"] > 0
    assert not (tmp_path / "state").exists()


def test_another_process_on_the_gpu_is_named_unless_it_is_ours():
    before = {user.pid for user in gpu_users()}
    code = "import torch, sys; x = torch.ones(1 << 20, device='cuda'); torch.cuda.synchronize(); print('on', flush=True); sys.stdin.read()"
    other = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert other.stdout is not None and other.stdout.readline() == b"on\n"
        assert other.pid not in {user.pid for user in gpu_users()}, "a child of ours was named"
        ask = "from kernelwright.capture.gpu_users import gpu_users; print(len(gpu_users()))"
        seen = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, timeout=60,
                              env={**os.environ, "PYTHONPATH": str(ROOT / "src")})
        assert int(seen.stdout) >= len(before) + 1, seen.stderr
    finally:
        other.kill()
        other.wait()

"""The example training script, unmodified, on a real GPU: the table, exit 0, the files of a run that stops there, the overhead."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from stop_at_step import STOP_AT_STEP

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU is visible")]

ROOT = Path(__file__).resolve().parents[2]
STOP = 10 + 5 + 1 + 2
"""Warm-up, recorded, recorded with stacks, and bare steps for the overhead."""


def run(command, cwd):
    cwd.mkdir(exist_ok=True)
    env = {**os.environ, "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=500, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


@pytest.mark.parametrize("extra", [(), ("--compile",)])
def test_train_py_unmodified(extra, tmp_path):
    script = str(ROOT / "examples" / "train.py")
    argv = ["--batch-size", "64", "--width", "256", *extra]
    out = tmp_path / "out"
    stdout, _ = run([sys.executable, str(ROOT / "scripts" / "profile_kernel.py"), script, "--python", sys.executable, "--out", str(out),
                     "--warmup", "10", "--", *argv], tmp_path / "profiled")
    assert "## Top 15 CUDA kernels (5 profiled steps)" in stdout
    assert "| Rank | Kernel | Self CUDA (ms) | % of Total | Calls |" in stdout
    assert re.search(r"^_Total CUDA time: [\d.]+(s|ms|us) over 5 steps_$", stdout, re.MULTILINE)
    document = json.loads((out / "profile.json").read_text())
    rows = [*(k for o in document["operators"] for k in o["kernels"]), *document["unattributed_kernels"]]
    assert sum(row["duration_ns"] for row in rows) == document["timeline"]["measured_ns"] > 0
    print(f"\noverhead per profiled step {extra}: {document['script']['overhead_per_step']} ratio {document['script']['overhead_ratio']}")
    _, said = run([sys.executable, "-c", STOP_AT_STEP, str(STOP), script, *argv], tmp_path / "alone")
    losses = [line for line in (out / "raw" / "script_stderr.txt").read_text().splitlines() if line.startswith("step ")]
    assert losses == [line for line in said.splitlines() if line.startswith("step ")] and len(losses) == STOP - 1
    names = sorted(str(path.relative_to(tmp_path / "alone")) for path in (tmp_path / "alone").rglob("*") if path.is_file())
    assert names == ["checkpoints/last.pt"]
    if extra:
        return  # two unprofiled runs of the compiled script differ in the checkpoint's last bits themselves (up to 4e-6, H200, torch 2.11)
    for name in names:
        assert (tmp_path / "profiled" / name).read_bytes() == (tmp_path / "alone" / name).read_bytes()

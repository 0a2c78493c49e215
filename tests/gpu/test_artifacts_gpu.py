"""Compiled and autotuned kernels of real runs on a GPU: Triton's own objects, Inductor's, max-autotune's choices."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU is visible")]

ROOT = Path(__file__).resolve().parents[2]
STAGES = {"ttir", "ttgir", "llir", "ptx", "cubin"}

MAX_AUTOTUNE = """
import torch
import torch._inductor.config

def get_model_and_input():
    torch._inductor.config.max_autotune_gemm_backends = "TRITON,ATEN"
    model = torch.nn.Sequential(torch.nn.Linear(512, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 512)).eval().cuda()
    compiled = torch.compile(model, mode="max-autotune-no-cudagraphs")

    def run(x):
        with torch.no_grad():
            return compiled(x)

    return run, torch.randn(256, 512)
"""


def profile(out: Path, *argv: str, **env: str) -> dict:
    command = [sys.executable, "-m", "kernelwright", "profile_kernel", *argv, "--device", "cuda", "--python", sys.executable,
               "--json", "--out", str(out)]
    path = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(command, capture_output=True, text=True, cwd=out.parent, timeout=290,
                          env={**os.environ, "PYTHONPATH": path, "KERNELWRIGHT_CLOCKS": "none", **env})
    assert done.returncode == 0, done.stderr
    document = json.loads((out / "profile.json").read_text())
    listed = {path for row in document["compiled_kernels"] for path in row["artifacts"]}
    assert all((out / path).is_file() for path in listed), listed
    strange = [line for line in document["warnings"] if "compiled" in line and "call is compiled" not in line]
    assert strange == []
    return document


def endings(row: dict) -> set[str]:
    return {path.rsplit(".", 1)[1] for path in row["artifacts"] if path.startswith("compiled/")}


def test_an_autotuned_triton_kernel(tmp_path):
    document = profile(tmp_path / "out", str(ROOT / "examples" / "triton_softmax.py"), "v3", "--rows=8192", "--cols=256")
    (row,) = [row for row in document["compiled_kernels"] if row["origin"] == "triton"]
    assert row["python_name"] == "tile_kernel" and row["source"].startswith("triton_softmax.py:")
    assert {"ROWS", "num_warps"} <= set(row["config"]) and row["configs_tried"] == 6
    assert 0 < row["best_ns"] <= row["second_ns"] and row["registers"] > 0 and row["spills"] is not None
    assert endings(row) >= STAGES and row["stages"]
    (tuning,) = [path for path in row["artifacts"] if path.endswith("autotuning.json")]
    timings = json.loads((tmp_path / "out" / tuning).read_text())["kernels"][0]["tunings"][0]["timings"]
    assert len(timings) == 6 and timings[0]["config"] == {name: row["config"][name] for name in timings[0]["config"]}
    cubin = next(path for path in row["artifacts"] if path.endswith(".cubin"))
    assert (tmp_path / "out" / cubin).read_bytes()[:4] == b"\x7fELF"
    shown = [k for op in document["operators"] for k in op["kernels"]] + document["unattributed_kernels"]
    assert any((k["python_name"] or "").startswith("tile_kernel (triton_softmax.py:") for k in shown)
    report = (tmp_path / "out" / "report.md").read_text()
    assert "tile_kernel (triton_softmax.py:" in report.split("## Top kernels")[1]


def test_a_plain_triton_kernel_in_event_mode(tmp_path):
    document = profile(tmp_path / "out", str(ROOT / "examples" / "triton_softmax.py"), "v2", "--mode", "event", "--rows=8192")
    (row,) = document["compiled_kernels"]
    assert row["python_name"] == "row_kernel" and row["configs_tried"] is None and endings(row) >= STAGES
    assert {path.split("/")[1] for path in row["artifacts"]} == {"triton_softmax", "triton_softmax.json"}


@pytest.mark.parametrize("run", ["cold", "warm"])
def test_gpt2_under_inductor(tmp_path_factory, run):
    cache = Path(tmp_path_factory.getbasetemp()) / "inductor-cache-of-artifacts"
    out = tmp_path_factory.mktemp("gpt2") / "out"
    document = profile(out, str(ROOT / "examples" / "gpt2.py"), "--compile-mode", "inductor", TORCHINDUCTOR_CACHE_DIR=str(cache))
    rows = [row for row in document["compiled_kernels"] if row["origin"] == "inductor"]
    timeline = {k["kernel_name"] for op in document["operators"] for k in op["kernels"] if k["kernel_name"].startswith("triton_")}
    assert timeline and timeline <= {row["kernel_name"] for row in rows}, run
    for row in rows:
        assert row["config"] and row["registers"] and {"ptx", "cubin"} <= endings(row), row
    assert any(row["fused_nodes"] for row in rows) and any(row["stages"] for row in rows)
    assert list((out / "compiled").rglob("output_code_1.py"))
    assert json.loads((out / "params.json").read_text())["phases_s"]["compiled"] < 5


def test_max_autotune(tmp_path):
    (tmp_path / "w.py").write_text(MAX_AUTOTUNE)
    document = profile(tmp_path / "out", str(tmp_path / "w.py"), TORCHINDUCTOR_CACHE_DIR=str(tmp_path / "cache"))
    choices = [row for row in document["compiled_kernels"] if row["origin"] == "template"]
    assert len(choices) == 2 and all(row["configs_tried"] > 2 and 0 < row["best_ns"] <= row["second_ns"] for row in choices)
    assert all(any(path.endswith("autotuning.json") for path in row["artifacts"]) for row in choices)
    # Candidates that lost are not shown as kernels of the workload.
    assert len([row for row in document["compiled_kernels"] if row["origin"] == "inductor"]) <= 6

"""Mode ncu for real: `pytest tests/gpu/test_ncu_mode_gpu.py` on a machine with a GPU, ncu and open counters (about 3 min)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.gpu


def profile(out: Path, *words: str) -> Path:
    command = [sys.executable, "-m", "kernelwright", "profile_kernel", *words, "--mode", "ncu", "--python", sys.executable,
               "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return out


def documents(folder: Path) -> tuple[dict, dict, str]:
    return (json.loads((folder / "profile.json").read_text()), json.loads((folder / "params.json").read_text()),
            (folder / "report.md").read_text())


def test_the_heaviest_kernels_of_a_convolution_network(tmp_path: Path):
    found, params, report = documents(profile(tmp_path / "out", str(ROOT / "examples" / "conv_block.py"), "--heaviest", "2"))
    assert 1 <= len(found["stages"]) <= 2 and params["ncu"]["passes"] > 20 and len(report) <= 6000
    assert all(kernel["metrics"]["raw"] for operator in found["operators"] for kernel in operator["kernels"])
    assert any(operator["operator_name"].startswith("aten::") and operator["input_shapes"] for operator in found["operators"])
    assert list((tmp_path / "out" / "sass").glob("*.sass")) and "## Hottest lines" in report and "n/a: this capture" not in report


def test_a_triton_kernel_by_name_has_its_source_annotated(tmp_path: Path):
    folder = profile(tmp_path / "out", str(ROOT / "examples" / "triton_softmax.py"), "v2", "--kernel", "row_kernel")
    source = [path.read_text() for path in (folder / "annotated").rglob("*.py")]
    assert any("tl.load" in text and "%" in text for text in source) and list((folder / "ptx").glob("*.ptx"))


def test_launches_of_an_operator(tmp_path: Path):
    found, _params, _report = documents(profile(tmp_path / "out", str(ROOT / "examples" / "conv_block.py"), "--operator", "aten::addmm"))
    assert {operator["operator_name"] for operator in found["operators"]} == {"aten::addmm"} and not found["unattributed_kernels"]


def test_a_capture_reads_the_same_without_the_workload(tmp_path: Path):
    folder = profile(tmp_path / "live", str(ROOT / "examples" / "conv_block.py"), "--heaviest", "1")
    report = next((folder / "raw").glob("*.ncu-rep"))
    command = [sys.executable, "-m", "kernelwright", "profile_kernel", str(report), "--out", str(tmp_path / "again")]
    assert subprocess.run(command, capture_output=True, timeout=200, cwd=ROOT).returncode == 0
    first, again = (json.loads((place / "profile.json").read_text()) for place in (folder, tmp_path / "again"))
    names = {stage["name"] for stage in first["stages"]}
    assert next(stage for stage in again["stages"] if stage["name"] in names)["duration_ns"] == first["stages"][0]["duration_ns"]

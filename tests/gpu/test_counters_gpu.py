"""The default counters on this GPU, against values computed by hand. Needs ncu, nvcc and Triton, and counters that are allowed."""

from __future__ import annotations

import json
import lzma
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kernelwright.roofline.counters import known, metric_names, value
from known_counters import BY_HAND, TOLERANCE

torch = pytest.importorskip("torch")
ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "tests" / "gpu" / "counters"
LACKING = [tool for tool in ("ncu", "nvcc") if shutil.which(tool) is None]
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU is visible"),
              pytest.mark.skipif(bool(LACKING), reason=f"not found: {', '.join(LACKING)}")]
MOST_PASSES = 12


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The launches of known_kernels.py with the default set of this chip."""
    folder = tmp_path_factory.mktemp("known")
    names = metric_names(torch.cuda.get_device_capability(0))
    assert names, "no counter names are known for this GPU"
    done = subprocess.run(["ncu", "--clock-control", "none", "--nvtx", "--profile-from-start", "off", "-f", "-o", str(folder / "known"),
                           "--metrics", ",".join(names), sys.executable, str(FOLDER / "known_kernels.py")],
                          capture_output=True, text=True, timeout=400, check=False)
    if "ERR_NVGPUCTRPERM" in done.stdout + done.stderr:
        pytest.skip("hardware counters are not allowed here")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    out = folder / "rows.json.xz"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    subprocess.run([sys.executable, str(FOLDER / "rows.py"), str(out), str(folder / "known.ncu-rep")], check=True, timeout=60,
                   env=environment)
    found: list[dict[str, Any]] = json.loads(lzma.decompress(out.read_bytes()))
    return found


def test_every_default_metric_has_a_value(rows: list[dict[str, Any]]) -> None:
    asked = metric_names(torch.cuda.get_device_capability(0))
    for row in rows:
        assert not set(asked) - set(row["metrics"]), row["case"]


def test_the_default_set_fits_in_its_passes(rows: list[dict[str, Any]]) -> None:
    if torch.cuda.get_device_capability(0) == (9, 0):
        assert max(row["metrics"]["profiler__replayer_passes"] for row in rows) <= MOST_PASSES


@pytest.mark.parametrize(("case", "role", "by_hand", "how"), BY_HAND)
def test_bytes_and_flops_by_hand(rows: list[dict[str, Any]], case: str, role: str, by_hand: float, how: str) -> None:
    figures = [known(role, row["metrics"], torch.cuda.get_device_capability(0)) for row in rows if row["case"] == case]
    if not figures or None in figures:
        pytest.skip(f"not in the default set here: {value(role, rows[0]['metrics'])}")
    if "flops_f" in role and not any(figures):
        pytest.skip("the library chose tensor cores for this product")
    total = figures[0] if "_per_" in role else sum(figures)
    assert total == pytest.approx(by_hand, rel=TOLERANCE), how


def test_the_busy_tensor_pipe_is_the_rate_of_its_operations(rows: list[dict[str, Any]]) -> None:
    """DMMA counts as tensor work, HFMA2 does not (sm_90)."""
    if torch.cuda.get_device_capability(0) != (9, 0):
        pytest.skip("measured on sm_90 only")
    tensor = {row["case"]: known("tensor_pct", row["metrics"], (9, 0)) or 0.0 for row in rows}
    assert tensor["gemm_f64_1024"] > 50 and tensor["gemm_bf16_4096"] > 70 and tensor["fma_chain"] < 0.1


def test_float64_by_accident_is_seen(rows: list[dict[str, Any]]) -> None:
    metrics = next(row["metrics"] for row in rows if row["case"] == "promoted")
    assert (known("fp64_pct", metrics) or 0) > 10
    assert known("flops_dfma", metrics) == pytest.approx(2 * (1 << 20) * 64, rel=TOLERANCE)

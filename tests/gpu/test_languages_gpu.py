"""Versions in CuPy, an extension that the project builds, cuTile and the CUTLASS DSL: profiled, counted and judged where installed."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kernelwright.judge import JudgeOptions, judge
from kernelwright.model.workload import WorkloadRef

pytestmark = pytest.mark.gpu
PROJECT = Path(__file__).resolve().parents[1] / "data" / "languages"
KERNELS = {"cupy": "axpy_cupy", "built": "axpy_built", "cutile": "axpy_tile", "cute": "axpy_cute"}
NEEDS = {"cupy": "cupy", "cutile": "cuda.tile", "cute": "cutlass"}


def installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("languages") / "project"
    shutil.copytree(PROJECT, folder)
    return folder


@pytest.fixture(scope="module", params=list(KERNELS))
def version(request, project) -> str:
    if not installed(NEEDS.get(request.param, "torch")):
        pytest.skip(f"{NEEDS[request.param]} is not installed")
    if request.param == "built":
        subprocess.run([sys.executable, "build.py"], cwd=project, check=True, capture_output=True, timeout=200)
    return request.param


def profiled(project: Path, version: str, mode: str) -> dict:
    out = project / "out" / f"{version}_{mode}"
    done = subprocess.run([sys.executable, "-m", "kernelwright", "profile_kernel", version, "--mode", mode, "--clocks", "none",
                           "--python", sys.executable, "--out", str(out)], cwd=project, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads((out / "profile.json").read_text())


def names(document: dict) -> list[str]:
    rows = [*(kernel for operator in document["operators"] for kernel in operator["kernels"]), *document["unattributed_kernels"]]
    return [row["kernel_name"] for row in rows]


def test_its_kernel_is_timed_and_named(project, version):
    found = profiled(project, version, "annotation")
    assert any(KERNELS[version] in name for name in names(found)), names(found)
    assert profiled(project, version, "event")["timing"]["median_ns"] > 0


def test_the_judge_sees_its_kernel_and_finds_it_right(project, version):
    workload = WorkloadRef(path=project / "axpy.py", name="axpy", import_from=(project / "build",))
    verdict = judge(workload, project / f"axpy_{version}.py", JudgeOptions())
    seen = next(row for row in verdict.audits if row.name == "kernels seen")
    print(version, verdict.verdict, verdict.speedup, [(row.name, row.result, row.detail) for row in verdict.audits])
    assert verdict.correctness.passed and verdict.verdict not in ("WRONG", "CHEAT"), verdict.reasons
    assert seen.result == ("not_applicable" if version == "built" else "passed"), seen.detail

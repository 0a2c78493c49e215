"""tiling/ and compiled/ of real runs under Inductor's C++ back end, as a user sees them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernelwright.cli.main import main
from published_schemas import check_document
from warm_start import warm_start

ROOT = Path(__file__).resolve().parents[2]

MAX_AUTOTUNE = """
import torch
import torch._inductor.config

def get_model_and_input():
    torch._inductor.config.freezing = True
    torch._inductor.config.max_autotune_gemm_backends = "CPP,ATEN"
    model = torch.nn.Linear(256, 128).eval()
    compiled = torch.compile(model, mode="max-autotune-no-cudagraphs")

    def run(x):
        with torch.no_grad(), torch.profiler.record_function("stage:project/1"):
            return compiled(x)

    return run, torch.randn(64, 256)
"""


@pytest.fixture(scope="module")
def caches(tmp_path_factory):
    return {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path_factory.mktemp("inductor"))}


def profile(out: Path, caches: dict[str, str], *argv: str) -> dict:
    command = [sys.executable, str(ROOT / "scripts" / "profile_kernel.py"), *argv, "--device", "cpu", "--json", "--out", str(out),
               "--python", sys.executable]
    done = subprocess.run(command, capture_output=True, text=True, cwd=out.parent, timeout=280, env={**os.environ, **caches})
    assert done.returncode == 0, done.stderr
    return document_in(out)


def quickly(out: Path, *argv: str) -> dict:
    """The same in this process and forks of it."""
    with warm_start():
        assert main(["profile_kernel", *argv, "--device", "cpu", "--json", "--out", str(out), "--python", sys.executable]) == 0
    return document_in(out)


def document_in(out: Path) -> dict:
    document = json.loads((out / "profile.json").read_text())
    check_document(document)
    return document


def files(out: Path, top: str) -> set[str]:
    return {str(path.relative_to(out / top)) for path in (out / top).rglob("*") if path.is_file()}


def test_generated_cpp_code_and_an_eager_run_into_the_same_folder(tmp_path, caches, monkeypatch):
    for name, value in caches.items():
        monkeypatch.setenv(name, value)
    out, workload = tmp_path / "out", str(ROOT / "tests" / "data" / "workloads" / "mlp.py")
    document = quickly(out, workload, "--compile-mode", "inductor", "--steps", "2")
    (folder,) = {name.split("/")[0] for name in files(out, "compiled")}
    assert {"output_code_1.py"} < {name.split("/")[1] for name in files(out, "compiled")}
    sources = [name for name in files(out, "compiled") if name.endswith(".cpp")]
    assert len(sources) == len([row for row in document["compiled_kernels"] if row["origin"] == "inductor_cpp"]) >= 1
    assert all('extern "C"' in (out / "compiled" / name).read_text() for name in sources)
    tiling = json.loads((out / "tiling" / f"{folder}.json").read_text())
    assert tiling["stage"] in {stage["name"] for stage in document["stages"]}
    assert {path for row in document["compiled_kernels"] for path in row["artifacts"]} == \
        {f"compiled/{name}" for name in files(out, "compiled")} | {f"tiling/{name}" for name in files(out, "tiling")}
    assert "## Compiled code" in (out / "report.md").read_text() and document["evidence"]["compiled"] == "compiler"
    assert json.loads((out / "params.json").read_text())["phases_s"]["compiled"] > 0

    document = quickly(out, workload, "--mode", "event")
    assert document["compiled_kernels"] == [] and not (out / "compiled").exists() and not (out / "tiling").exists()
    assert "## Compiled code" not in (out / "report.md").read_text()


def test_choices_of_max_autotune_are_kept_with_their_timings(tmp_path, caches):
    (tmp_path / "project.py").write_text(MAX_AUTOTUNE)
    # A graph that comes from Inductor's cache was not tuned by this process, so nothing would be told.
    uncached = {**caches, "TORCHINDUCTOR_FX_GRAPH_CACHE": "0", "TORCHINDUCTOR_AUTOGRAD_CACHE": "0",
                "TORCHINDUCTOR_VEC_ISA_OK": "1",  # the second choice is a kernel for the processor's vectors,
                "TORCHINDUCTOR_DEBUG_COMPILE": "1"}  # which takes the C++ compiler twice as long with -O3
    document = profile(tmp_path / "out", uncached, str(tmp_path / "project.py"), "--steps", "2")
    (choice,) = [row for row in document["compiled_kernels"] if row["origin"] == "template"]
    assert choice["configs_tried"] == 2 and 0 < choice["best_ns"] <= choice["second_ns"] and choice["timing_evidence"] == "autotuner"
    assert choice["stages"] == ["stage:project/1".removeprefix("stage:")]
    tuning = json.loads((tmp_path / "out" / "tiling" / "project_1" / "autotuning.json").read_text())
    (asked,) = tuning["choices"]
    assert tuning["stage"] == "project/1" and len(asked["timings"]) == 2
    assert document["evidence"]["autotuning"] == "autotuner"

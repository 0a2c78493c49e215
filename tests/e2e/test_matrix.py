"""Every form of a workload through every verb: KernelBench's, plain functions in VERSIONS, an nn.Module with its input."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import kernelwright
from kernelwright.cli.main import VERBS, main
from warm_start import warm_start

KERNELBENCH = """
import torch
class Model(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = torch.nn.Linear(width, width)
    def forward(self, x):
        return torch.relu(self.linear(x))
def get_inputs(): return [torch.rand(32, 24)]
def get_init_inputs(): return [24]
"""
FUNCTIONS = """
import torch
PARAMS = {"n": 48}
def get_inputs(n): return (torch.rand(n, n),)
def flops(n): return 0
def slow(x): return torch.stack([row.sum() for row in x])
def quick(x): return x.sum(dim=1)
VERSIONS = {"v1": slow, "v2": quick}
"""
MODULE = """
import torch
def get_model_and_input(width=24):
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.ReLU()), torch.rand(32, width)
"""
CANDIDATES = {
    "kb": "import torch\nfrom kb import Model\nclass ModelNew(Model):\n    def forward(self, x): return self.linear(x).clamp_min(0)\n",
    "fn": "def forward(x): return x.sum(dim=-1)\n",
    "net": "def optimize(model, x): return lambda x: model[0](x).clamp_min(0)\n",
}
LOOSE = "[{duration_us: 1000000000}]"
BUDGETS = {"kb": LOOSE, "fn": "[{version: v2, versus: v1, slower_pct: 0, params: {n: 96}}]", "net": LOOSE}
VERSIONS = {"kb": (None, None), "fn": ("v1", "v2"), "net": (None, None)}
RUN = ["--device", "cpu", "--python", sys.executable, "--json"]
Call = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder with a workload of each form, its project file as `init` wrote it, and a budget for each."""
    folder = tmp_path_factory.mktemp("matrix")
    for name, source in (("kb", KERNELBENCH), ("fn", FUNCTIONS), ("net", MODULE)):
        (folder / f"{name}.py").write_text(source)
        (folder / "candidates").mkdir(exist_ok=True)
        (folder / "candidates" / f"{name}.py").write_text(CANDIDATES[name])
    assert main(["init", str(folder)]) == 0
    file = folder / "kernelwright.yaml"
    lines = file.read_text().splitlines()
    for name, budgets in BUDGETS.items():
        place = next(number for number, line in enumerate(lines) if line.strip() == f"{name}:")
        indent = len(lines[place + 1]) - len(lines[place + 1].lstrip())
        lines.insert(place + 1, f"{' ' * indent}budgets: {budgets}")
    file.write_text("\n".join(lines))
    return folder


@pytest.fixture
def call(project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Call]:
    """A verb in the project's folder: its JSON answer."""
    monkeypatch.chdir(project)
    monkeypatch.setenv("CXX", "/nonexistent/c++")  # no compiler: compiling would take most of the time
    capsys.readouterr()

    def run(*words: str, code: int = 0) -> dict[str, Any]:
        exit_code, told = main(list(words)), capsys.readouterr()
        assert exit_code == code, (told.out, told.err)
        answer: dict[str, Any] = json.loads(told.out)
        return answer

    with warm_start():
        yield run


@pytest.mark.parametrize("name", ["kb", "fn", "net"])
def test_a_form_goes_through_every_verb(name: str, call: Call, project: Path) -> None:
    first, last = VERSIONS[name]
    words = [name] + ([last] if last else [])
    event = call("profile_kernel", *words, "--mode", "event", "--warmup", "2", "--steps", "20", *RUN)
    whole = call("profile_kernel", *words, "--mode", "annotation", "--steps", "2", *RUN)
    found = kernelwright.Profile.load(whole["out_dir"])
    assert found.capture_metadata.model_name == name and found.capture_metadata.version == last and found.operators
    assert "## Profile:" in Path(whole["contract"]).read_text()
    if name == "fn":  # its flops() is 0: known, and without a rate
        assert found.work is not None and found.work.flops is not None and found.work.flops.value == 0 and found.work.compute_pct == 0
        assert found.work.achieved_compute is None and found.work.arithmetic_intensity is None

    before = call("profile_kernel", name, *([first] if first else []), "--mode", "event", "--warmup", "2", "--steps", "20", *RUN)
    rows = call("compare", before["out_dir"], event["out_dir"], "--json")["rows"]
    assert [row["mode"] for row in rows] == ["event", "event"] and all(row["duration_us"] > 0 for row in rows)
    if last:
        swept = call("compare", name, "v1", "v2", "--sweep", "n=8", *RUN)["rows"]
        assert len(swept) == 2 and all(row["duration_us"] > 0 for row in swept)

    for place in (before, event):
        call("devlog", "add", place["out_dir"], "--insight", "a note", "--json")
    shown = call("devlog", "show", name, "--json")["markdown"]
    assert shown.count("a note") == 2 and (name != "fn" or shown.count("| Achieved TFLOPs/s | n/a |") == 2)

    budget = call("bench", name, "--check", "--pairs", "3", *RUN)["budgets"]
    assert [row["outcome"] for row in budget] == ["within"], budget

    verdict = call("judge", name, f"candidates/{name}.py", "--max-timing", "0.3s", *(["--version", first] if first else []), *RUN)
    assert verdict["verdict"] in ("FASTER", "SAME", "SLOWER", "AMBIGUOUS"), verdict

    done = call("optimize", name, *([first] if first else []), "--budget", "4s", *RUN)
    assert Path(done["report"]).is_file() and done["status"] == "ok"


def test_the_matrix_knows_every_verb() -> None:
    of_machines = {"doctor", "gpu_clock"}  # they take no workload
    source = Path(__file__).read_text()
    assert {verb for verb in VERBS if f'("{verb}"' in source or f'["{verb}"' in source} == set(VERBS) - of_machines

"""CUDA graphs that a workload made itself, on a GPU: those by make_graphed_callables are taken off, a captured call is left alone."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from kernelwright.probe.rewrites.unwrap_compiled import is_graphed, unwrap_compiled

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU is visible")]

ROOT = Path(__file__).resolve().parents[2]
CAPTURED = '''
import torch
from torch import nn


class Replayed(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(*[part for _ in range(6) for part in (nn.Linear(1024, 1024), nn.ReLU())])
        self.given, self.made, self.graph = torch.zeros(256, 1024), None, None

    def forward(self, x):
        if self.graph is None:
            side = torch.cuda.Stream()
            with torch.cuda.stream(side):
                for _ in range(3):
                    self.layers(self.given)
            torch.cuda.synchronize()
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.made = self.layers(self.given)
        self.given.copy_(x)
        self.graph.replay()
        return self.made.clone()


def get_model_and_input():
    with torch.device("cuda"):
        model = Replayed().eval().requires_grad_(False)
        x = torch.randn(256, 1024)
    model(x)
    return model, x
'''


@torch.no_grad()
def test_what_make_graphed_callables_made_is_taken_off() -> None:
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(256, 256), nn.GELU(), nn.LayerNorm(256)).cuda().eval().requires_grad_(False)
    x = torch.randn(32, 256, device="cuda")
    expected = plain(x)
    graphed = torch.cuda.make_graphed_callables(plain, (torch.randn_like(x),))
    assert is_graphed(graphed)
    bare = unwrap_compiled(graphed, (x,), {})
    assert not is_graphed(bare) and is_graphed(graphed), "the model stays as it is"
    assert torch.equal(bare(x), expected) and bare(torch.randn(7, 256, device="cuda")).shape == (7, 256), "no graph holds its shape"
    doubled = bare.double()  # what the judge's float64 run does to it
    assert doubled(x.double()).dtype == torch.float64 and float((doubled(x.double()) - expected.double()).abs().max()) < 1e-3


def test_a_call_that_replays_a_graph_of_its_own_is_left_alone_with_the_mend(tmp_path) -> None:
    """Nothing but what works on the host's side is tried, and the report says why and what to do."""
    workload = tmp_path / "captured.py"
    workload.write_text(CAPTURED)
    environment = {**os.environ, "KERNELWRIGHT_PYTHON": sys.executable, "PYTHONPATH": os.pathsep.join(
        [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run([sys.executable, str(ROOT / "scripts" / "optimize.py"), str(workload), "--budget", "40s", "--json",
                           "--out", str(tmp_path / "out"), "--python", sys.executable], capture_output=True, text=True, timeout=200,
                          env=environment, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    report = (tmp_path / "out" / "report.md").read_text()
    assert "Already graphed: nearly all of a call is replayed from a CUDA graph that the workload captured itself" in report
    assert "torch.cuda.make_graphed_callables, which can be taken off" in report
    kept = set(json.loads(done.stdout)["kept"])
    assert not kept & {"cuda_graph", "compile_default", "compile_reduce_overhead", "compile_max_autotune", "split_products"}, kept

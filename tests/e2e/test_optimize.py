"""optimize.py on the CPU, for real: a tiny workload, a short budget, no C++ compiler; its artifacts; resume; Ctrl-C."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from processes import soon

ROOT = Path(__file__).resolve().parents[2]
# Where a graph for gradients would be recorded it does its work several times: without gradients it is several times faster on the busiest
# machine. No waiting instead: a side that sleeps and one that works are not slowed alike by others, and the judge's own clock doubts that.
WORKLOAD = '''
import torch
from torch import nn


class Chain(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.w = nn.ParameterList([nn.Parameter(torch.randn(16)) for _ in range(n)])

    def forward(self, x):
        for w in list(self.w) * 4:
            for _ in range(6 if torch.is_grad_enabled() else 1):
                y = torch.tanh(x * w + w)
            x = y
        return x


def get_model_and_input(n=6):
    return Chain(n).eval(), torch.randn(4, 16)
'''
KEYS = {"status", "out_dir", "kept", "speedup", "interval", "optimized", "report", "devlog", "contract", "precision", "confirmed", "clocks",
        "warnings"}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("optimize")
    (folder / "chain.py").write_text(WORKLOAD)
    return folder


def environment(place: Path) -> dict[str, str]:
    caches = {"TORCHINDUCTOR_CACHE_DIR": str(place / "inductor"), "KERNELWRIGHT_LOCK": str(place / "device.lock")}
    return {**os.environ, **caches, "CXX": "/nonexistent/c++", "OMP_NUM_THREADS": "1"}


def argv(*more: str) -> list[str]:
    script = str(ROOT / "scripts" / "optimize.py")
    return [sys.executable, script, "chain.py", "--device", "cpu", "--python", sys.executable, "--json", *more]


def run(place: Path, *more: str) -> tuple[int, dict, str]:
    done = subprocess.run(argv(*more), cwd=place, env=environment(place), capture_output=True, text=True, timeout=280)
    assert done.stdout.count("\n") == 1, done.stderr
    return done.returncode, json.loads(done.stdout), done.stderr


@pytest.fixture(scope="module")
def first(place):
    return run(place, "--budget", "2m", "--n=5")


def test_a_candidate_is_kept_and_every_artifact_is_there(place, first):
    status, answer, err = first
    assert status == 0 and set(answer) == KEYS and answer["status"] == "ok", err
    assert "no_grad" in answer["kept"] and answer["speedup"] > 1 and answer["interval"][0] > 1, err
    assert answer["precision"] == "equal" and answer["confirmed"] is True and isinstance(answer["warnings"], list)
    folder = Path(answer["out_dir"])
    assert folder.parent == place / "out" / "optimize" / "chain"
    for name in ("baseline/profile.json", "baseline/contract.md", "after/profile.json", "after/contract.md", "ledger.jsonl", "state.json",
                 "optimized.py", "test_optimized.py", "report.md", "report.json", "report.html", "figures/gains.svg"):
        assert (folder / name).is_file(), name
    assert all(Path(answer[key]).is_file() and Path(answer[key]).is_absolute() for key in ("optimized", "report", "devlog", "contract"))
    assert "### vs Baseline" in Path(answer["contract"]).read_text()
    log, contract = Path(answer["devlog"]).read_text(), Path(answer["contract"]).read_text()
    durations = [line for line in (*log.splitlines(), *contract.splitlines()) if line.startswith(("| Duration |", "| Duration (us) |"))]
    assert "chain optimized" in log and len(durations) == 3 and sum("% faster" in line for line in durations) == 2, durations
    assert not any("slower" in line or "within noise" in line for line in durations), "the verdict is FASTER"
    assert not [path for path in folder.rglob("*") if path.name.startswith(".") and path.name != ".lock"]


def test_without_a_compiler_the_compile_rows_are_failed_with_that_reason(first):
    folder = Path(first[1]["out_dir"])
    rows = {row["name"]: row for row in map(json.loads, (folder / "ledger.jsonl").read_text().splitlines())}
    assert rows["compile_default"]["status"] == "failed" and "C++ compiler" in rows["compile_default"]["reason"]
    assert rows["compile_max_autotune_no_cudagraphs"]["reason"] == rows["compile_default"]["reason"]
    assert "C++ compiler" in (folder / "report.md").read_text()


def test_optimized_py_runs_as_it_stands_anywhere(first, tmp_path):
    bare = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH",)}
    done = subprocess.run([sys.executable, first[1]["optimized"]], cwd=tmp_path, env=bare, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "optimised" in done.stdout, done.stderr
    code = ("import torch, optimized\nmodel, x = optimized.get_model_and_input()\nassert not model(x).requires_grad\n"
            "assert model(torch.ones(7, 16)).requires_grad\nassert len(list(model.parameters())) == 5")
    folder = Path(first[1]["optimized"]).parent
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, env=bare, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_resume_judges_nothing_twice_and_refuses_other_parameters(place, first):
    folder = Path(first[1]["out_dir"])
    files = [folder / "ledger.jsonl", folder / "report.md", Path(first[1]["devlog"])]
    before = [file.read_bytes() for file in files]
    status, answer, err = run(place, "--budget", "2m", "--n=5", "--resume")
    assert status == 0 and answer == first[1], err
    assert [file.read_bytes() for file in files] == before, "a finished run is neither judged nor logged again"
    status, answer, _err = run(place, "--n=6", "--resume")
    assert status == 2 and answer["status"] == "error" and "parameters" in answer["error"]["message"]


def processes_of(place: Path) -> list[str]:
    """Command lines of processes that were started with this test's environment."""
    mark, found = str(place / "inductor").encode(), []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark in (folder / "environ").read_bytes():
                found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return found


def test_ctrl_c_leaves_the_best_so_far_and_no_process(place):
    said = place / "said.txt"
    with said.open("w") as err:
        process = subprocess.Popen(argv("--budget", "5m", "--out", str(place / "cut")), cwd=place, env=environment(place),
                                   stdout=subprocess.PIPE, stderr=err, text=True, start_new_session=True)
    ledger, give_up = place / "cut" / "ledger.jsonl", time.monotonic() + 200
    while not (ledger.is_file() and '"verdict":"FASTER"' in ledger.read_text()) and time.monotonic() < give_up and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    answer = json.loads(out)
    assert process.returncode == 130 and answer["error"]["code"] == "interrupted", said.read_text()
    verdicts = [row["verdict"]["verdict"] for row in map(json.loads, ledger.read_text().splitlines()) if row["verdict"]]
    assert "FASTER" in verdicts and Path(answer["optimized"]).is_file() and Path(answer["report"]).is_file()
    assert soon(lambda: not processes_of(place)), processes_of(place)

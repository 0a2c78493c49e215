"""Several ranks on this machine, as a user runs them: recorded together, compared, and all gone whatever happens to one of them."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from kernelwright.capture import ranks
from kernelwright.cli import main
from processes import gone
from warm_start import warm_start

ROOT = Path(__file__).resolve().parents[2]
VERB = [sys.executable, "-m", "kernelwright", "profile_kernel"]
HERE = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
LATE = """
import os, time
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
print("rank", rank, "of", os.environ["WORLD_SIZE"], "local", os.environ["LOCAL_RANK"], "of", os.environ["LOCAL_WORLD_SIZE"], flush=True)
model = DistributedDataParallel(torch.nn.Linear(64, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(100):
    optimizer.zero_grad()
    loss = model(torch.ones(8, 64)).sum()
    if rank == 1:
        time.sleep(0.15)
    loss.backward()
    optimizer.step()
"""
FOREVER = """
import os, time
open(os.environ["PIDS"] + "/" + os.environ["RANK"], "w").write(str(os.getpid()))
{extra}
while True:
    time.sleep(0.1)
"""


def _unpacked(file: Path) -> bytes:
    data = file.read_bytes()
    return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data


def _script(folder, text):
    (folder / "train.py").write_text(text)
    return "train.py"


def _pids(folder: Path, count: int) -> list[int]:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        texts = [path.read_text() for path in folder.iterdir()]
        if len(texts) == count and all(texts):
            return [int(text) for text in texts]
        time.sleep(0.05)
    raise AssertionError("the ranks did not start")


def test_two_ranks_are_recorded_and_the_late_one_is_named(tmp_path, monkeypatch, capfd):
    out = tmp_path / "out"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PLANTED_API_TOKEN", "planted-5f1c9e")
    argv = [_script(tmp_path, LATE), "--ranks", "2", "--device", "cpu", "--steps", "4", "--out", str(out), "--json"]
    with warm_start(before_torch=True):
        code = main(["profile_kernel", *argv, "--python", sys.executable])
    said, shown = capfd.readouterr()
    assert code == 0, shown
    answer = json.loads(said)
    assert answer["out_dir"] == str(out) and answer["recordings"] == [str(out / "raw" / f"rank{rank}" / "trace.json.gz") for rank in (0, 1)]
    for rank in (0, 1):
        assert (out / "raw" / f"rank{rank}" / "script_stdout.txt").read_text() == f"rank {rank} of 2 local {rank} of 2\n"
    assert "rank 0 of 2" in shown and "rank 1 of 2" not in shown

    found = json.loads((out / "ranks.json").read_text())
    assert found["world_size"] == 2 and found["backend"] == "host" and found["missing"] == []
    assert [row["steps"] for row in found["ranks"]] == [4, 4] and found["left_out_steps"] == 1
    assert found["collectives"] >= 4 and found["unmatched"] == 0
    # The second rank sleeps 150 ms before its backward pass; that is what the first one waits.
    assert found["ranks"][1]["last"] >= 4 > found["ranks"][0]["last"]
    assert min(found["waits_by_step"][0]) > 30e6 and found["waits_for"][0][1] > 4 * 30e6
    assert found["ranks"][0]["exposure"]["exposed_waiting_ns"] > 4 * 30e6 > found["ranks"][1]["exposure"]["exposed_waiting_ns"]
    report = (out / "report.md").read_text()
    assert "**Rank 1 arrived last most often**" in report and len(report) < 6000
    assert {path.name for path in out.iterdir()} == {"csv", "params.json", "ranks.json", "raw", "report.md", "timeline.html",
                                                     "wait_heatmap.png", "wait_heatmap.svg"}
    assert [path for path in out.rglob("*") if path.is_file() and b"planted-5f1c9e" in _unpacked(path)] == []

    assert main(["profile_kernel", str(out), "--mode", "nsys", "--out", str(tmp_path / "again"), "--json"]) == 0
    assert json.loads((tmp_path / "again" / "ranks.json").read_text())["waits_for"] == found["waits_for"]


def test_when_one_rank_fails_it_is_named_and_the_others_are_ended(tmp_path, monkeypatch, capfd):
    (tmp_path / "pids").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PIDS", str(tmp_path / "pids"))
    monkeypatch.setattr(ranks, "FAILED_GRACE_S", 0.5)
    script = _script(tmp_path, FOREVER.format(extra="if os.environ['RANK'] == '1': raise ValueError('no data for this rank')"))
    assert main(["profile_kernel", script, "--ranks", "3", "--device", "cpu", "--out", str(tmp_path / "out")]) == 4
    err = capfd.readouterr().err
    assert "rank 1: " in err and "no data for this rank" in err
    assert "rank 1: " in json.loads((tmp_path / "out" / "error.json").read_text())["message"]
    assert gone(_pids(tmp_path / "pids", 3))


def test_an_interrupt_reaches_every_rank(tmp_path):
    (tmp_path / "pids").mkdir()
    running = subprocess.Popen([*VERB, _script(tmp_path, FOREVER.format(extra="")), "--ranks", "2", "--device", "cpu", "--out",
                                str(tmp_path / "out")], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path,
                               env={**HERE, "PIDS": str(tmp_path / "pids")})
    try:
        pids = _pids(tmp_path / "pids", 2)
        running.send_signal(signal.SIGINT)
        _out, err = running.communicate(timeout=60)
    finally:
        running.kill()
    assert running.returncode == 130 and "interrupted" in err and "Traceback" not in err
    assert json.loads((tmp_path / "out" / "error.json").read_text())["code"] == "interrupted"
    assert gone(pids)

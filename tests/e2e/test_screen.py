"""The screen's real process on the CPU: candidates that are right, wrong, raise, die and hang, one after another."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

import pytest

from kernelwright.judge import judge
from kernelwright.judge.options import JudgeOptions
from kernelwright.model.workload import WorkloadRef
from kernelwright.optimize import screen
from kernelwright.optimize.screen import Ask, Screener, Unusable
from kernelwright.probe.rewrites import keep_heap
from processes import gone, soon, status
from warm_start import warm_start

WORKLOAD = '''
import time

import torch
from torch import nn


class Slow(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(64, 64)

    def forward(self, x):
        time.sleep(0.004)
        return torch.tanh(self.inner(x))


def get_model_and_input():
    return Slow().eval(), torch.randn(512, 64)
'''
WORKLOADS = Path(__file__).resolve().parents[1] / "data" / "dynamic"
HEAD = "import os\nimport time\nimport torch\ndef optimize(model, inputs):\n"
CANDIDATES = {
    "fast": HEAD + "    return lambda x: torch.tanh(model.inner(x))\n",
    "slow": HEAD + "    return lambda x: (time.sleep(0.02), model(x))[1]\n",
    "wrong": HEAD + "    return lambda x: 1.1 * torch.tanh(model.inner(x))\n",
    "raises": HEAD + "    raise NotImplementedError('not applicable: nothing to fuse')\n",
    "breaks": HEAD + "    raise ValueError('broken')\n",
    "dies": HEAD + "    os.kill(os.getpid(), 9)\n",
    "hangs": HEAD + "    time.sleep(1000)\n",
    "spoils": HEAD + "    model.inner.weight.data.zero_()\n    torch.set_default_dtype(torch.float64)\n    return model\n",
}


@pytest.fixture(scope="module", autouse=True)
def warm():
    with warm_start():
        yield


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("screen")
    (folder / "slow.py").write_text(WORKLOAD)
    for name, text in CANDIDATES.items():
        (folder / f"c_{name}.py").write_text(text)
    return folder


def test_a_candidate_never_spoils_the_next_and_all_are_told_apart(place):
    workload = WorkloadRef(path=place / "slow.py", name="slow")
    with Screener(workload, JudgeOptions(device="cpu", python=sys.executable)) as screener:
        def look(name: str, limit_s: float = 60.0, **more: object):
            return screener.screen(Ask(place / f"c_{name}.py", "equal", limit_s, **more))

        first = look("fast")
        process = screener._worker.pid
        assert first.status == "timed" and first.speedup > 3 and first.interval[0] > 2 and first.pairs >= 6, first
        assert first.candidate_ns < first.reference_ns and first.error <= first.limit and first.elapsed_s > 0
        wrong = look("wrong")
        assert wrong.status == "wrong" and wrong.speedup is None and "differ" in wrong.reason
        assert wrong.error == pytest.approx(0.1, rel=0.01)
        assert (look("raises").status, look("raises").reason) == ("not_applicable", "nothing to fuse")
        broken = look("breaks")
        assert broken.status == "failed" and "ValueError: broken" in broken.reason
        assert look("spoils").status == "wrong"
        assert "killed by signal 9" in look("dies").reason
        assert look("hangs", 2.0).status == "out_of_budget"
        hopeless = look("slow", hopeless=1.0)
        assert hopeless.status == "hopeless" and hopeless.speedup < 0.5 and hopeless.pairs <= 3
        side_by_side = look("slow", against=place / "c_fast.py", against_name="fast")
        assert side_by_side.speedup < 0.2 and side_by_side.against == "fast"
        again = look("fast")
        assert again.status == "timed" and again.speedup > 3 and screener._worker.pid == process, "one process, loaded once"
    assert gone([process]) and not screener._scratch.folder.exists()


def test_a_workload_that_sets_its_precision_by_torchs_newer_names_is_screened(place, tmp_path):
    (tmp_path / "newer.py").write_text(WORKLOAD + '\n\ntorch.backends.fp32_precision = "tf32"\n')
    with Screener(WorkloadRef(path=tmp_path / "newer.py", name="newer"), JudgeOptions(device="cpu", python=sys.executable)) as screener:
        seen = screener.screen(Ask(place / "c_fast.py", "equal", 60.0))
    assert seen.status == "timed" and seen.speedup > 3, seen


def test_where_sizes_follow_the_seed_several_are_compared_and_timed(tmp_path):
    ragged = WORKLOADS / "ragged.py"
    (tmp_path / "one_size.py").write_text(HEAD + "    rows = len(inputs)\n    return lambda x: model(x) * (1 if len(x) == rows else 2)\n")
    (tmp_path / "any_size.py").write_text(
        HEAD + "    def call(x):\n        with torch.no_grad():\n            return model(x)\n    return call\n")
    with Screener(WorkloadRef(path=ragged, name="ragged"), JudgeOptions(device="cpu", python=sys.executable)) as screener:
        asked = {name: Ask(tmp_path / f"{name}.py", "equal", 60.0, shapes=True) for name in ("one_size", "any_size")}
        wrong, right = screener.screen(asked["one_size"]), screener.screen(asked["any_size"])
    assert wrong.status == "wrong" and "differ" in wrong.reason
    assert right.status == "timed" and right.error <= right.limit


def test_a_workload_that_does_not_load_can_not_be_screened(place, tmp_path):
    file = tmp_path / "bad.py"
    file.write_text("def get_model_and_input():\n    raise RuntimeError('no weights here')\n")
    with Screener(WorkloadRef(path=file, name="bad"), JudgeOptions(device="cpu", python=sys.executable)) as screener, \
            pytest.raises(Unusable, match="no weights here"):
        screener.screen(Ask(place / "c_fast.py", "equal", 60.0))


LOOKS = HEAD + """    import fcntl
    with open({lock!r}) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise NotImplementedError("not applicable: the lock is held")
    raise NotImplementedError("not applicable: the lock is free")
"""


def test_a_candidate_that_times_kernels_is_built_under_the_lock(place, tmp_path, monkeypatch):
    lock = tmp_path / "device.lock"
    lock.touch()
    monkeypatch.setenv("KERNELWRIGHT_LOCK", str(lock))
    (tmp_path / "looks.py").write_text(LOOKS.format(lock=str(lock)))
    with Screener(WorkloadRef(path=place / "slow.py", name="slow"), JudgeOptions(device="cpu", python=sys.executable)) as screener:
        said = [screener.screen(Ask(tmp_path / "looks.py", "equal", 60.0, measures=measures)).reason for measures in (True, False)]
        assert said == ["the lock is held", "the lock is free"]
        timed = screener.screen(Ask(place / "c_fast.py", "equal", 60.0, measures=True))
        assert timed.status == "timed", "the lock was free again for the timing"


def test_what_compiles_ahead_is_stopped_also_right_after_its_start(place, monkeypatch):
    monkeypatch.setattr(screen, "compilers", lambda _cores: 1)
    with Screener(WorkloadRef(path=place / "slow.py", name="slow"), JudgeOptions(device="cpu", python=sys.executable)) as screener:
        screener.compile_ahead([place / "c_fast.py"], 60.0)
        [compiler] = screener._ahead
        supervisor = compiler.worker.process.pid
        with screener.quiet():
            process = compiler.worker.pid
            assert process != supervisor and soon(lambda: status(process)[0] == "T") and status(supervisor)[0] != "T"
        assert soon(lambda: status(process)[0] != "T")
        assert soon(lambda: screener.compiled(place / "c_fast.py"), 60.0) and not compiler.busy, "it goes on, and ends"
    assert gone([supervisor, process])


def test_loading_anew_takes_no_longer_than_the_budget_has_left(place, tmp_path):
    file, flag = tmp_path / "later.py", tmp_path / "slow"
    waits = f"def get_model_and_input():\n    from pathlib import Path\n    if Path({str(flag)!r}).exists():\n        time.sleep(1000)"
    file.write_text(WORKLOAD.replace("def get_model_and_input():", waits))
    with Screener(WorkloadRef(path=file, name="later"), JudgeOptions(device="cpu", python=sys.executable)) as screener:
        assert screener.screen(Ask(place / "c_fast.py", "equal", 60.0, 60.0)).status == "timed"
        process = screener._worker.pid
        flag.touch()
        screener._rest()
        found = screener.screen(Ask(place / "c_fast.py", "equal", 60.0, 3.0))
        assert found.status == "out_of_budget" and "not loaded" in found.reason and 3.0 <= found.elapsed_s < 20.0
        flag.unlink()
        assert screener.screen(Ask(place / "c_fast.py", "equal", 60.0, 60.0)).status == "timed"
        assert screener._worker.pid != process


LARGE = '''
import torch
from torch import nn


class Large(nn.Module):
    """Results of 40 MiB: more than what malloc keeps by itself."""

    def forward(self, x):
        return (torch.relu(x) + 1.0).sum(-1)


def get_model_and_input():
    return Large().eval(), torch.randn(1280, 8192)
'''
KEEPS = (Path(keep_heap.__file__).read_text() + '''

def optimize(model, inputs):
    return keep_heap(model, (inputs,), {})
''').replace("from __future__ import annotations\n", "")


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the setting is glibc's")
def test_a_setting_of_the_whole_process_is_timed_against_the_original_without_it(place):
    """`keep_heap` was timed against an original that had it too: 0.98x, where it was 4.3x for its user."""
    (place / "large.py").write_text(LARGE)
    (place / "c_keeps.py").write_text(KEEPS)
    (place / "c_itself.py").write_text(HEAD + "    return model\n")
    workload, options = WorkloadRef(path=place / "large.py", name="large"), JudgeOptions(device="cpu", python=sys.executable)
    with Screener(workload, options) as screener:
        kept = screener.screen(Ask(place / "c_keeps.py", "equal", 60.0, lasts=True))
        assert screener._worker is None, "the next candidate has a process without the setting"
        again = screener.screen(Ask(place / "c_itself.py", "equal", 60.0))
    assert kept.status == again.status == "timed" and kept.speedup > 1.5, (kept, again)
    assert again.reference_ns > 1.5 * kept.candidate_ns
    said = judge(workload, place / "c_keeps.py", options)
    assert said.verdict == "FASTER" and said.speedup > 1.5, said

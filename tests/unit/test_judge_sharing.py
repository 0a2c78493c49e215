"""The inputs of a judgement's rounds: made ahead, told in order, and nothing left behind."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from kernelwright.judge import JudgeOptions, ReferenceSession, channel, judge, sharing, tensors
from kernelwright.judge.channel import WorkerFailed
from kernelwright.judge.exchange import Seeds
from kernelwright.judge.options import Deadline, OutOfTime
from kernelwright.judge.replies import Done, InputsMade
from kernelwright.judge.sharing import Sharing
from kernelwright.model.workload import WorkloadRef
from kernelwright.probe import judge_tensors
from property_examples import examples

DATA = Path(__file__).resolve().parents[1] / "data" / "judge"
OPTIONS = JudgeOptions(device="cpu", python=sys.executable, timing=False, distributions=False, steadiness=False, degenerate=False,
                       timeout_s=60)


class Process:
    """A worker that refuses a command while another is not answered."""

    def __init__(self, role: str, log: list[str], fails: dict[str, BaseException]) -> None:
        self.role, self.log, self.fails, self.pending, self.ended = role, log, fails, "", False

    def send(self, op: str, **fields: Any) -> None:
        if self.ended:
            raise WorkerFailed("died", "has ended", role=self.role)
        assert not self.pending, f"{op} was sent while {self.pending} was not answered"
        self.pending = f"{op} {fields.get('round', '')}"
        self.log.append(f"{self.role} {self.pending}")
        if op == "make_inputs":
            Path(fields["file"]).write_bytes(b"inputs")


@dataclass(frozen=True)
class Side:
    """How the parent talks to it."""

    worker: Process
    folder: Path
    makes_s: float = 0.0
    timeout_s: float = 60.0
    deadline: Deadline = field(default_factory=lambda: Deadline(None))

    def receive(self, op: str, shape: type[Any]) -> Any:
        self.worker.pending, told = "", self.worker.pending
        if op == "make_inputs" and self.makes_s > self.timeout_s:
            self.worker.ended = True
            raise WorkerFailed("timeout", "did not finish", role=self.worker.role)
        self.worker.log.append(f"{self.worker.role} answers {told}")
        if told in self.worker.fails:
            raise self.worker.fails[told]
        return InputsMade(jittered=[], plain=[]) if shape is InputsMade else Done()

    def ask(self, op: str, shape: type[Any], **fields: Any) -> Any:
        self.worker.send(op, **fields)
        return self.receive(op, shape)


def shared(tmp_path: Path, *, makes_s: float = 0.0, **fails: dict[str, BaseException]) -> tuple[Sharing, list[str], Process]:
    log: list[str] = []
    sides = []
    for role in ("reference", "candidate"):
        (tmp_path / role).mkdir()
        sides.append(Side(Process(role, log, fails.get(role, {})), tmp_path / role, makes_s if role == "reference" else 0.0))
    return Sharing(*sides, Seeds(1), tmp_path / "candidate"), log, sides[0].worker  # type: ignore[arg-type]


def files(tmp_path: Path) -> list[str]:
    return [file.parent.name for file in sorted(tmp_path.glob("*/*"))]


def test_the_next_rounds_inputs_are_made_while_the_candidate_takes_the_ones_before(tmp_path):
    rounds, log, _ = shared(tmp_path)
    rounds.share(0, upcoming=(1, None))
    rounds.share(1)
    assert log == ["reference make_inputs 0", "reference answers make_inputs 0", "reference make_inputs 1",
                   "candidate take_inputs 0", "candidate answers take_inputs 0", "reference answers make_inputs 1",
                   "candidate take_inputs 1", "candidate answers take_inputs 1"]
    assert not files(tmp_path)


def test_inputs_that_are_large_are_not_made_ahead(tmp_path, monkeypatch):
    monkeypatch.setattr(sharing, "AHEAD_BYTES", 5)
    rounds, log, _ = shared(tmp_path)
    rounds.share(0, upcoming=(1, None))
    assert "reference make_inputs 1" not in log


def test_where_the_disk_has_little_room_nothing_is_made_ahead(tmp_path, monkeypatch):
    """A full disk is the original's failure, or the candidate's: seen with 16 MiB of inputs and 26 MiB of room."""
    monkeypatch.setattr(sharing.shutil, "disk_usage", lambda _folder: SimpleNamespace(free=sharing.FREE_TIMES * len(b"inputs") - 1))
    rounds, log, _ = shared(tmp_path)
    rounds.share(0, upcoming=(1, None))
    assert "reference make_inputs 1" not in log


def test_a_candidate_cannot_see_what_is_made_ahead(tmp_path):
    rounds, _, _ = shared(tmp_path)
    rounds.share(0, upcoming=(1, None))
    assert files(tmp_path) == ["reference"]
    rounds.settle()
    assert files(tmp_path) == ["reference"]
    rounds.share(1)
    assert not files(tmp_path)


def test_where_making_them_ahead_fails_that_round_tells_it_and_the_one_before_does_not(tmp_path):
    failed = WorkerFailed("workload_failed", "no such inputs", role="reference")
    rounds, _, _ = shared(tmp_path, reference={"make_inputs 1": failed})
    rounds.share(0, upcoming=(1, None))
    rounds.settle()
    with pytest.raises(WorkerFailed, match="no such inputs"):
        rounds.share(1)
    assert not files(tmp_path)


def test_a_process_that_died_making_them_ahead_is_told_at_once(tmp_path):
    rounds, _, _ = shared(tmp_path, reference={"make_inputs 1": WorkerFailed("died", "was killed", role="reference")})
    rounds.share(0, upcoming=(1, None))
    with pytest.raises(WorkerFailed, match="was killed"):
        rounds.settle()
    assert not files(tmp_path)


def test_a_candidate_that_fails_leaves_the_reference_ready_for_the_next_one_and_no_file(tmp_path):
    """Its process serves other candidates: a reply that nobody took would be the answer to their first command."""
    rounds, log, reference = shared(tmp_path, candidate={"take_inputs 0": WorkerFailed("inputs_differ", "other inputs")})
    with pytest.raises(WorkerFailed, match="other inputs"):
        rounds.share(0, upcoming=(1, None))
    assert not reference.pending and "reference forget 1" in log and not files(tmp_path)


@pytest.mark.parametrize("failure", [WorkerFailed("died", "was killed"), OutOfTime("the candidate was at its take inputs")])
def test_inputs_that_take_long_to_make_keep_no_failure_waiting(tmp_path, failure):
    rounds, _, reference = shared(tmp_path, makes_s=sharing.DROP_S + 1, candidate={"take_inputs 0": failure})
    with pytest.raises(type(failure)) as told:
        rounds._made = (0, tmp_path / "reference" / "0.tensors", InputsMade(jittered=[], plain=[]))
        rounds._made[1].write_bytes(b"inputs")
        rounds.share(0, upcoming=(1, None))
    assert told.value is failure and reference.ended and not files(tmp_path)


def test_an_interrupt_leaves_neither_a_file_nor_a_reply_that_nobody_takes(tmp_path):
    rounds, _, reference = shared(tmp_path, makes_s=0.1, candidate={"take_inputs 0": KeyboardInterrupt()})
    rounds._made = (0, tmp_path / "reference" / "0.tensors", InputsMade(jittered=[], plain=[]))
    rounds._made[1].write_bytes(b"inputs")
    with pytest.raises(KeyboardInterrupt):
        rounds.share(0, upcoming=(1, None))
    assert reference.ended and not files(tmp_path)


def test_what_was_made_ahead_for_nothing_is_forgotten(tmp_path):
    rounds, log, reference = shared(tmp_path)
    rounds.share(0, upcoming=(1, None))
    rounds.drop()
    assert log[-1] == "reference answers forget 1" and not reference.pending and not files(tmp_path)


SIZES = st.lists(st.tuples(st.sampled_from([torch.float32, torch.int8, torch.bfloat16, torch.bool, torch.float64]), st.integers(0, 70)),
                 max_size=5)


@given(SIZES)
@example([(torch.float32, 1), (torch.float32, 0)])
@examples(60)
def test_tensors_of_any_sizes_come_back_from_a_file_as_they_were(tmp_path_factory, sizes):
    file = tmp_path_factory.mktemp("leaves") / "leaves"
    leaves = [(str(index), torch.arange(count).to(dtype)) for index, (dtype, count) in enumerate(sizes)]
    judge_tensors.write_leaves(str(file), leaves)
    again = judge_tensors.read_leaves(str(file), torch.device("cpu"))
    assert [path for path, _ in again] == [path for path, _ in leaves]
    file.unlink()  # what was read does not depend on it
    assert all(one.dtype == two.dtype and torch.equal(one, two) for (_, one), (_, two) in zip(again, leaves, strict=True))
    judge_tensors.write_leaves(str(file), leaves)
    assert [leaf.values.tolist() for leaf in tensors.read_leaves(file)] == [leaf.float().tolist() if leaf.dtype == torch.bfloat16
                                                                           else leaf.tolist() for _, leaf in leaves]


@given(SIZES)
@examples(60)
def test_parts_that_go_through_one_block_of_host_memory_are_the_whole(sizes):
    for dtype, count in sizes:
        flat = torch.arange(count).to(dtype)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(judge_tensors, "STAGED_BYTES", 64)
            parts = [part.clone() for part in judge_tensors._staged(flat)]
        assert all(part.numel() * part.element_size() <= 64 for part in parts)
        assert torch.equal(torch.cat([*parts, flat[:0]]), flat)


def test_a_file_that_ends_too_early_is_refused(tmp_path):
    file = tmp_path / "leaves"
    judge_tensors.write_leaves(str(file), [("0", torch.ones(100))])
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(ValueError, match="ends within 0"):
        judge_tensors.read_leaves(str(file), torch.device("cpu"))


SLOW = """import time

import torch

MADE = []


def get_model_and_input():
    MADE.append(1)
    if len(MADE) > 1:
        time.sleep(60)
    return torch.nn.Identity(), torch.ones(4)
"""


def test_an_original_whose_time_is_up_ends_beside_the_candidate(tmp_path, monkeypatch):
    """One that holds a GPU's memory takes a moment to end: a budget has two seconds for all of them."""
    (tmp_path / "slow.py").write_text(SLOW)
    log: list[str] = []
    for name in ("tell_to_end", "close"):
        done = getattr(channel.Worker, name)
        monkeypatch.setattr(channel.Worker, name, lambda worker, done=done, name=name: (log.append(f"{worker.role} {name}"), done(worker)))
    workload = WorkloadRef(path=tmp_path / "slow.py", name="slow")
    with ReferenceSession(workload, OPTIONS) as session:
        session.ready(Deadline(None))
        first = session.worker
        with pytest.raises(OutOfTime, match="the reference was at its make inputs"):
            judge(workload, DATA / "wide" / "same.py", OPTIONS, session=session, deadline_s=time.monotonic() + 10.0)
        assert log.index("reference tell_to_end") < log.index("candidate close") and "reference close" not in log
        session.ready(Deadline(None))
        assert session.worker is not first and first.process.poll() is not None, "another one is started once that has ended"

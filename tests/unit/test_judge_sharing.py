"""The inputs of a judgement's rounds: made ahead, told in order, and nothing left behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernelwright.judge import sharing, tensors
from kernelwright.judge.channel import WorkerFailed
from kernelwright.judge.exchange import Seeds
from kernelwright.judge.replies import Done, InputsMade
from kernelwright.judge.sharing import Sharing
from kernelwright.probe import judge_tensors
from property_examples import examples


class Side:
    """One worker's side: answers commands in order, and refuses one while another is not answered."""

    def __init__(self, role: str, log: list[str], fails: dict[str, WorkerFailed] | None = None) -> None:
        self.role, self.log, self.fails, self.pending = role, log, fails or {}, ""
        self.worker = self

    def send(self, op: str, **fields: Any) -> None:
        assert not self.pending, f"{op} was sent while {self.pending} was not answered"
        self.pending = f"{op} {fields.get('round', '')}"
        self.log.append(f"{self.role} {self.pending}")
        if op == "make_inputs":
            Path(fields["file"]).write_bytes(b"inputs")

    def receive(self, op: str, shape: type[Any]) -> Any:
        self.pending, told = "", self.pending
        self.log.append(f"{self.role} answers {told}")
        if told in self.fails:
            raise self.fails[told]
        return InputsMade(jittered=[], plain=[]) if shape is InputsMade else Done()

    def ask(self, op: str, shape: type[Any], **fields: Any) -> Any:
        self.send(op, **fields)
        return self.receive(op, shape)


def shared(tmp_path: Path, **fails: dict[str, WorkerFailed]) -> tuple[Sharing, list[str], Side]:
    log: list[str] = []
    reference = Side("reference", log, fails.get("reference"))
    return Sharing(reference, Side("candidate", log, fails.get("candidate")), Seeds(1), tmp_path), log, reference  # type: ignore[arg-type]


def test_the_next_rounds_inputs_are_made_while_the_candidate_takes_the_ones_before(tmp_path):
    rounds, log, _ = shared(tmp_path)
    rounds.share(0, upcoming=(1, None))
    rounds.share(1)
    assert log == ["reference make_inputs 0", "reference answers make_inputs 0", "reference make_inputs 1",
                   "candidate take_inputs 0", "candidate answers take_inputs 0", "reference answers make_inputs 1",
                   "candidate take_inputs 1", "candidate answers take_inputs 1"]
    assert not list(tmp_path.iterdir())


def test_inputs_that_are_large_are_not_made_ahead(tmp_path, monkeypatch):
    monkeypatch.setattr(sharing, "AHEAD_BYTES", 5)
    rounds, log, _ = shared(tmp_path)
    rounds.share(0, upcoming=(1, None))
    assert "reference make_inputs 1" not in log


def test_where_making_them_ahead_fails_that_round_tells_it_and_the_one_before_does_not(tmp_path):
    failed = WorkerFailed("workload_failed", "no such inputs", role="reference")
    rounds, _, _ = shared(tmp_path, reference={"make_inputs 1": failed})
    rounds.share(0, upcoming=(1, None))
    rounds.settle()
    with pytest.raises(WorkerFailed, match="no such inputs"):
        rounds.share(1)
    assert not list(tmp_path.iterdir())


def test_a_process_that_died_making_them_ahead_is_told_at_once(tmp_path):
    rounds, _, _ = shared(tmp_path, reference={"make_inputs 1": WorkerFailed("died", "was killed", role="reference")})
    rounds.share(0, upcoming=(1, None))
    with pytest.raises(WorkerFailed, match="was killed"):
        rounds.settle()
    assert not list(tmp_path.iterdir())


def test_a_candidate_that_fails_leaves_the_reference_ready_for_the_next_one_and_no_file(tmp_path):
    """Its process serves other candidates: a reply that nobody took would be the answer to their first command."""
    rounds, log, reference = shared(tmp_path, candidate={"take_inputs 0": WorkerFailed("inputs_differ", "other inputs")})
    with pytest.raises(WorkerFailed, match="other inputs"):
        rounds.share(0, upcoming=(1, None))
    assert not reference.pending and "reference forget 1" in log and not list(tmp_path.iterdir())


def test_what_was_made_ahead_for_nothing_is_forgotten(tmp_path):
    rounds, log, reference = shared(tmp_path)
    rounds.share(0, upcoming=(1, None))
    rounds.drop()
    assert log[-1] == "reference answers forget 1" and not reference.pending and not list(tmp_path.iterdir())


SIZES = st.lists(st.tuples(st.sampled_from([torch.float32, torch.int8, torch.bfloat16, torch.bool, torch.float64]), st.integers(0, 70)),
                 max_size=5)


@given(SIZES)
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


def test_a_file_that_ends_too_early_is_refused(tmp_path):
    file = tmp_path / "leaves"
    judge_tensors.write_leaves(str(file), [("0", torch.ones(100))])
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(ValueError, match="ends within 0"):
        judge_tensors.read_leaves(str(file), torch.device("cpu"))

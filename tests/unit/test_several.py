"""Several workloads in one command: one table, one fault does not stop the others, an interruption does."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from kernelwright.cli.common import Answer
from kernelwright.cli.optimize import _table
from kernelwright.cli.several import Outcome, run_each
from kernelwright.model.errors import BadInput, Interrupted, WorkloadFailed
from kernelwright.model.saying import silent
from kernelwright.model.workload import WorkloadRef

ONE, TWO = (WorkloadRef(path=Path("/w.py"), name="mla|x", version=version) for version in ("v1", "v2"))


def test_optimisations_share_a_table_and_the_first_fault_decides() -> None:
    good = Answer({"kept": ["bf16", "fold"], "speedup": 1.5, "interval": [1.4, 1.6], "report": "/r.md"}, "")
    nothing = Answer({"kept": [], "speedup": 1.0, "interval": None, "report": "/n.md"}, "")
    answer = _table([Outcome(ONE, good, None), Outcome(TWO, None, WorkloadFailed("workload_raised", "no", where="w", fix="f")),
                     Outcome(ONE, nothing, None)], [ONE, TWO, ONE])
    assert answer.exit_code == 4 and answer.data["error"]["code"] == "workload_raised"
    assert [row["status"] for row in answer.data["optimizations"]] == ["ok", "error", "ok"]
    assert "bf16, fold | 1.50 | 1.40 to 1.60 | /r.md |" in answer.text and "failed: no" in answer.text
    assert "| nothing | 1.00 | n/a |" in answer.text
    assert _table([Outcome(ONE, nothing, None)], [ONE]).exit_code == 0
    fault = {"code": "interrupted", "message": "interrupted; the best so far was written", "where": "", "fix": "go on with --resume"}
    cut = Answer({**good.data, "status": "error", "error": fault}, "", 130)
    answer = _table([Outcome(ONE, nothing, None), Outcome(TWO, cut, None)], [ONE, TWO, ONE])
    assert (answer.exit_code, answer.data["status"], answer.data["error"]) == (130, "error", fault)
    assert [row["status"] for row in answer.data["optimizations"]] == ["ok", "error", "not begun"]
    assert "| bf16, fold (interrupted; the best so far was written) | 1.50 | 1.40 to 1.60 | /r.md |" in answer.text
    assert answer.text.splitlines()[-1].split(" | ")[1] == "not begun: interrupted before"


def test_each_gets_a_folder_and_a_fault_stops_none_of_the_others() -> None:
    folders = []

    def run(workload: WorkloadRef, args: argparse.Namespace) -> Answer:
        folders.append(args.out)
        if workload.version == "v1":
            raise BadInput("x", "y", where="w", fix="f")
        return Answer({}, "")

    outcomes = run_each([ONE, TWO], argparse.Namespace(out=Path("/o")), run, silent)
    assert [outcome.error is None for outcome in outcomes] == [False, True] and folders == [Path("/o/01-mla_x-v1"), Path("/o/02-mla_x-v2")]

    def stopped(workload: WorkloadRef, args: argparse.Namespace) -> Answer:
        raise Interrupted("here")

    with pytest.raises(Interrupted):
        run_each([ONE, TWO], argparse.Namespace(out=None), stopped, silent)
    late = run_each([ONE, TWO], argparse.Namespace(out=None), lambda workload, args: Answer({}, "", 130), silent)
    assert len(late) == 1

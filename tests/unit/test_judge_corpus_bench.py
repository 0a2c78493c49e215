"""The command that judges both corpora: what it keeps, where it goes on, what it counts. Nothing is judged."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

import judge_runs
from kernelwright.model.errors import BadInput, MachineLacks
from kernelwright.model.verdict import Verdict

FILE = Path(__file__).resolve().parents[2] / "bench" / "judge_corpus.py"
ENDLESS = float("inf")


class Once(float):
    """A limit that is past at the second look."""

    looks = 0

    def __lt__(self, now):
        self.looks += 1
        return self.looks > 1


@pytest.fixture
def bench(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    spec = importlib.util.spec_from_file_location("bench_judge_corpus", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(judge_runs, "FOLDER", tmp_path / "runs")
    monkeypatch.setattr(module, "_sources", lambda: "abc")
    return module


def verdict():
    return Verdict.model_validate({"verdict": "SAME", "workload": "w", "candidate": "c.py", "precision": "equal"})


def corpus(bench, monkeypatch, **candidates):
    """Its honest corpus; returns the names that were judged."""
    judged = []

    def judge(name, outcome):
        judged.append(name)
        if isinstance(outcome, Exception):
            raise outcome
        return verdict(), outcome

    monkeypatch.setattr(bench, "honest", lambda *_: ((name, lambda name=name, outcome=outcome: judge(name, outcome))
                                                     for name, outcome in candidates.items()))
    return judged


def test_it_goes_on_with_those_that_are_left_and_counts_what_was_wrong_before(bench, monkeypatch, tmp_path):
    judged = corpus(bench, monkeypatch, one="called a cheat")
    assert bench.run("honest", "cpu", 1.0, ENDLESS, record=True, copy=tmp_path / "copy") == 1
    assert (tmp_path / "copy" / "honest-cpu.json").read_bytes() == (tmp_path / "runs" / "honest-cpu.json").read_bytes()
    judged = corpus(bench, monkeypatch, one="", two="")
    assert bench.run("honest", "cpu", 1.0, ENDLESS, record=True) == 1 and judged == ["two"]
    monkeypatch.setattr(bench, "_sources", lambda: "other code")
    assert bench.run("honest", "cpu", 1.0, ENDLESS, record=True) == 0 and judged == ["two", "one", "two"]


def test_past_its_limit_it_begins_no_judgement_and_leaves_the_file(bench, monkeypatch, tmp_path):
    judged = corpus(bench, monkeypatch, one="", two="")
    assert bench.run("honest", "cpu", 1.0, 0.0, record=True) == 0
    assert judged == [] and not (tmp_path / "runs").exists()


def test_what_a_run_had_no_time_for_keeps_an_earlier_verdict_and_its_day(bench, monkeypatch):
    corpus(bench, monkeypatch, one="", two="", wrong="called a cheat", gone="")
    bench.run("honest", "cuda", 1.0, ENDLESS, record=True)
    stored = judge_runs.read("honest", "cuda")
    stored.date = "2025-01-02"
    stored.write()
    monkeypatch.setattr(bench, "_sources", lambda: "other code")
    judged = corpus(bench, monkeypatch, one="", two="", wrong="")
    assert bench.run("honest", "cuda", 1.0, Once(), record=True) == 0 and judged == ["one"]
    run = judge_runs.read("honest", "cuda")
    assert {name: row.earlier for name, row in run.rows.items()} == {"one": "", "two": "2025-01-02, abc"} and run.commit == "other code"
    assert run.cells("one") == "SAME | n/a" and run.cells("two") == "SAME (2025-01-02, abc) | n/a"
    assert run.cells("three") == "not run yet | n/a"
    assert "1 judged in 0 s, 0 not as they must be. Of the other 1 the verdict is an earlier run's" in run.summary(["one", "two", "three"])
    assert bench.run("honest", "cuda", 1.0, ENDLESS, record=True) == 0 and judged == ["one", "two", "wrong"]
    assert "earlier" not in judge_runs.read("honest", "cuda").summary(["one", "two"])


def test_a_reference_that_fails_is_said_and_the_others_are_judged(bench, monkeypatch, tmp_path):
    judged = corpus(bench, monkeypatch, one=BadInput("broken", "it does not load", fix="mend it"), two="")
    for begun in (["one", "two"], ["one", "two", "one"]):
        assert bench.run("honest", "cuda", 1.0, ENDLESS, record=True) == 1 and judged == begun
    rows = json.loads((tmp_path / "runs" / "honest-cuda.json").read_text())["rows"]
    assert "it does not load" in rows["one"]["wrong"] and rows["two"]["verdict"] == "SAME"


def test_a_machine_without_a_gpu_leaves_the_recorded_run_of_another(bench, monkeypatch, tmp_path, capsys):
    corpus(bench, monkeypatch, one=MachineLacks("no_cuda", "there is no GPU", fix="use another"))
    monkeypatch.setattr(sys, "argv", ["judge_corpus.py", "honest", "--device", "cuda", "--record"])
    assert bench.main() == 3 and "there is no GPU" in capsys.readouterr().err and not (tmp_path / "runs").exists()

"""bench --check: what decides a budget, the exit code, JUnit XML and GitHub's annotations."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

import builders
from kernelwright.cli import bench as bench_cli
from kernelwright.cli import main
from kernelwright.model.errors import Interrupted, WorkloadFailed
from kernelwright.report.budgets import BudgetRow, decide, limit_text, render_budgets, slower_pct
from kernelwright.report.ci import github_annotations, junit_xml

PROJECT = """
clocks: none
kernels:
  mla:
    file: mla.py
    versions: [v1, v2]
    params: {t: 16}
    budgets:
      - {duration_us: 100}
      - {version: v2, versus: v1, slower_pct: 3, params: {t: 64}}
  other: {file: mla.py, versions: [v1, v2]}
"""
Times = Callable[[str | None, int], float]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Times], list[tuple[str | None, dict[str, str]]]]:
    """A project whose n-th measurement of a version takes times(version, n) us; gives what was measured, in order."""
    (tmp_path / "mla.py").write_text("def f(x): return x\ndef get_inputs(): return ()\nVERSIONS = {'v1': f, 'v2': f}\n")
    (tmp_path / "kernelwright.yaml").write_text(PROJECT)
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path / "sub")
    monkeypatch.delenv("GITHUB_WORKSPACE", raising=False)

    def use(times: Times) -> list[tuple[str | None, dict[str, str]]]:
        measured: list[tuple[str | None, dict[str, str]]] = []

        def profiled(workload, mode, place, options, say):  # type: ignore[no-untyped-def]
            measured.append((workload.version, workload.params))
            count = sum(version == workload.version for version, _ in measured)
            document = builders.event(timing=builders.timing(times(workload.version, count)))
            return SimpleNamespace(profile=document, out_dir=place)

        monkeypatch.setattr(bench_cli, "profile", profiled)
        monkeypatch.setattr(bench_cli, "write_run", lambda done: {})
        return measured

    return use


def answer(capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


def test_budgets_that_hold_pass_and_say_what_was_measured(project, capsys):  # type: ignore[no-untyped-def]
    measured = project(lambda version, count: 50.0 + count / 100)
    assert main(["bench", "--check", "--json"]) == 0
    rows = answer(capsys)["budgets"]
    assert [(row["outcome"], row["limit"], row["version"], row["line"]) for row in rows] == \
        [("within", "at most 100 us", None, 9), ("within", "at most 3% slower than v1", "v2", 10)]
    assert measured[0] == (None, {"t": "16"}) and len(measured) == 11 and all(params == {"t": "64"} for _, params in measured[1:])
    # Drift falls on both sides: within a pair the order takes turns.
    assert [version for version, _ in measured[1:7]] == ["v2", "v1", "v1", "v2", "v2", "v1"]
    assert rows[1]["interval"] == [0.0, 0.0] and len(rows[1]["profiles"]) == 10


def test_over_needs_two_processes_and_exits_5_only_with_check(project, capsys):  # type: ignore[no-untyped-def]
    project(lambda version, count: 150.0 if version is None else 80.0)
    assert main(["bench", "mla", "--json"]) == 0
    assert answer(capsys)["budgets"][0]["outcome"] == "over"
    assert main(["bench", "mla", "--check"]) == 5
    assert "| mla | at most 100 us | 150.00 us" in capsys.readouterr().out
    project(lambda version, count: (150.0 if count == 1 else 90.0) if version is None else 80.0)
    assert main(["bench", "--check", "--json"]) == 0
    row = answer(capsys)["budgets"][0]
    assert row["outcome"] == "unsure" and "a first process took 150.00 us" in row["why"] and row["value"] == 90.0


@pytest.mark.parametrize(("value", "text"), [(1234567.8, "1234567.8"), (120.0, "120"), (3, "3"), (0.0, "0"), (1e-6, "0.000001"),
                                             (1e6, "1000000")])
def test_a_limit_keeps_its_digits(value, text):  # type: ignore[no-untyped-def]
    assert limit_text(value) == text


def test_a_limit_is_told_with_all_its_digits(project, capsys, tmp_path):  # type: ignore[no-untyped-def]
    project(lambda version, count: 2e6)
    (tmp_path / "kernelwright.yaml").write_text(PROJECT.replace("us: 100", "us: 1234567.8").replace("pct: 3,", "pct: 1234567.5,"))
    assert main(["bench", "--json"]) == 0
    assert [row["limit"] for row in answer(capsys)["budgets"]] == ["at most 1234567.8 us", "at most 1234567.5% slower than v1"]


def test_a_slower_version_is_over_and_one_at_the_limit_is_unsure(project, capsys):  # type: ignore[no-untyped-def]
    project(lambda version, count: {None: 50.0, "v1": 80.0, "v2": 88.0}[version] * (1 + count % 3 / 1000))
    assert main(["bench", "--check", "--json", "--pairs", "4"]) == 5
    row = answer(capsys)["budgets"][1]
    assert row["outcome"] == "over" and round(row["value"]) == 10 and row["interval"][0] > 9
    project(lambda version, count: {None: 50.0, "v1": 80.0, "v2": 82.4}[version] * (1 + (count * (7 if version == "v1" else 5)) % 9 / 200))
    assert main(["bench", "--check", "--json"]) == 0
    row = answer(capsys)["budgets"][1]
    assert row["outcome"] == "unsure" and "within the noise" in row["why"]


def test_what_cannot_be_measured_has_its_exit_code_and_the_rest_is_still_held(project, capsys, tmp_path):  # type: ignore[no-untyped-def]
    def times(version: str | None, count: int) -> float:
        if version == "v2":
            raise WorkloadFailed("out_of_memory", "too large", where="mla.py", fix="less")
        return 50.0

    project(times)
    assert main(["bench", "--check", "--json", "--junit", "r.xml", "--github"]) == 4
    told = capsys.readouterr()
    found = json.loads(told.out)
    assert found["status"] == "error" and found["error"]["code"] == "out_of_memory"
    assert [row["outcome"] for row in found["budgets"]] == ["within", "failed"]
    suite = ElementTree.parse(tmp_path / "sub" / "r.xml").getroot()[0]
    assert suite.attrib["tests"] == "2" and suite.attrib["errors"] == "1" and suite[1][0].attrib["type"] == "out_of_memory"
    assert any(line.startswith("::error file=") and ",line=10," in line for line in told.err.splitlines())


@pytest.mark.parametrize(("words", "code"), [([], 4), (["--check"], 5)])
def test_a_kernel_that_failed_is_not_hidden_by_a_budget_that_is_over(project, words, code, capsys):  # type: ignore[no-untyped-def]
    def times(version: str | None, count: int) -> float:
        if version == "v2":
            raise WorkloadFailed("workload_raised", "no", where="mla.py", fix="mend it")
        return 150.0

    project(times)
    assert main(["bench", *words, "--json"]) == code
    found = answer(capsys)
    assert found["status"] == "error" and found["error"]["code"] == "workload_raised" and found["over"] == 1


@pytest.mark.parametrize(("words", "says"), [
    (["other", "--check"], "there is no budget of other"), (["nobody"], "no kernel 'nobody'"), (["--pairs", "2"], "no interval"),
    (["--t=3"], "unknown argument"),
])
def test_what_a_gate_can_not_be_asked_is_one_line(project, words, says, capsys):  # type: ignore[no-untyped-def]
    project(lambda version, count: 50.0)
    assert main(["bench", *words]) == 2
    assert says in capsys.readouterr().err


def test_without_a_project_there_is_no_gate(tmp_path, monkeypatch, capsys):  # type: ignore[no-untyped-def]
    monkeypatch.chdir(tmp_path)
    assert main(["bench", "--check"]) == 2 and "kernelwright.yaml" in capsys.readouterr().err


def rows() -> Iterator[BudgetRow]:
    for outcome in ("within", "over", "unsure", "failed"):
        yield BudgetRow(builders.HOSTILE, "v:1,2%", {"t": "\x00<&>\n::error::x"}, 3, "at most 1 us", outcome, why=builders.HOSTILE)  # type: ignore[arg-type]


def test_an_earlier_runs_junit_does_not_outlive_a_run_that_ends_early(project, tmp_path):  # type: ignore[no-untyped-def]
    def stopped(version: str | None, count: int) -> float:
        raise Interrupted("here")

    project(stopped)
    (tmp_path / "sub" / "junit.xml").write_text("<of the run before/>")
    assert main(["bench", "--check", "--junit", "junit.xml"]) == 130
    assert not (tmp_path / "sub" / "junit.xml").exists()


def test_a_version_is_not_held_against_itself(tmp_path, monkeypatch, capsys):  # type: ignore[no-untyped-def]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kernelwright.yaml").write_text("kernels: {mla: {file: mla.py, versions: [v1, v2], budgets: [{version: v2, versus: v2}]}}")
    assert main(["bench"]) == 2
    assert "v2 is held against itself" in capsys.readouterr().err
    (tmp_path / "kernelwright.yaml").write_text(
        "kernels: {mla: {file: mla.py, versions: [v1, v2], default_version: v2, budgets: [{versus: v2}]}}")
    assert main(["bench"]) == 2
    assert "v2 is held against itself" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["VERSIONS = {'v1': f, 'v2': f}", "VERSIONS = {name: f for name in ('v1', 'v2')}"])
def test_nor_is_the_last_of_versions_where_none_is_named(project, tmp_path, monkeypatch, capsys, text):  # type: ignore[no-untyped-def]
    measured = project(lambda version, count: 50.0)
    profiled = bench_cli.profile

    def named(workload, *given, **more):  # type: ignore[no-untyped-def]
        done = profiled(workload, *given, **more)
        version = workload.version or "v2"
        return SimpleNamespace(out_dir=done.out_dir, profile=done.profile.model_copy(update={
            "capture_metadata": builders.metadata(mode="event", version=version)}))

    monkeypatch.setattr(bench_cli, "profile", named)
    (tmp_path / "mla.py").write_text(f"def f(x): return x\ndef get_inputs(): return ()\n{text}\n")
    (tmp_path / "kernelwright.yaml").write_text("kernels:\n  mla:\n    file: mla.py\n    budgets:\n      - {versus: v2, slower_pct: 3}\n")
    assert main(["bench", "--check", "--json"]) == 2
    error = answer(capsys)["error"]
    assert error["code"] == "bad_budgets" and error["message"].startswith("v2 is held against itself")  # type: ignore[index]
    assert "kernelwright.yaml:5: kernels.mla.budgets" in error["where"] and len(measured) == ("for name" in text)  # type: ignore[index]
    (tmp_path / "kernelwright.yaml").write_text("kernels: {mla: {file: mla.py, budgets: [{versus: v1, slower_pct: 3}]}}")
    assert main(["bench", "--check"]) == 0


def test_a_report_is_written_through_a_link(project, tmp_path, capsys):  # type: ignore[no-untyped-def]
    project(lambda version, count: 50.0)
    (tmp_path / "ci").mkdir()
    for name, target in (("old.xml", tmp_path / "ci" / "old.xml"), ("new.xml", tmp_path / "later" / "new.xml")):
        (tmp_path / name).symlink_to(target)
    (tmp_path / "ci" / "old.xml").write_text("of the run before")
    for name in ("old.xml", "new.xml"):
        assert main(["bench", "--check", "--junit", str(tmp_path / name)]) == 0
        assert (tmp_path / name).is_symlink() and ElementTree.parse(tmp_path / name).getroot()[0].attrib["tests"] == "2"
    (tmp_path / "null.xml").symlink_to("/dev/null")
    assert main(["bench", "--check", "--junit", str(tmp_path / "null.xml")]) == 2
    assert "is no regular file. Fix: name a file" in capsys.readouterr().err and (tmp_path / "null.xml").is_symlink()


def test_what_is_no_regular_file_is_not_replaced_by_a_report(project, tmp_path, capsys):  # type: ignore[no-untyped-def]
    project(lambda _version, _count: 1.0)
    os.mkfifo(tmp_path / "pipe")
    assert main(["bench", "--junit", str(tmp_path / "pipe")]) == 2
    assert "is no regular file. Fix: name a file" in capsys.readouterr().err and (tmp_path / "pipe").is_fifo()
    (tmp_path / "real.xml").write_text("of the run before")
    (tmp_path / "link.xml").symlink_to(tmp_path / "real.xml")

    def stopped(version: str | None, count: int) -> float:
        raise Interrupted("here")

    project(stopped)
    assert main(["bench", "--check", "--junit", str(tmp_path / "link.xml")]) == 130
    assert (tmp_path / "link.xml").is_symlink() and (tmp_path / "real.xml").read_text() == "of the run before"


def test_hostile_names_stay_inside_their_forms(tmp_path: Path) -> None:
    made = list(rows())
    root = ElementTree.fromstring(junit_xml(made, tmp_path / "kernelwright.yaml").encode())
    assert root.attrib["failures"] == "1" and root.attrib["errors"] == "1" and len(root[0]) == 4
    lines = github_annotations(made, tmp_path / "a,b:c" / "kernelwright.yaml", tmp_path)
    assert len(lines) == 3 and [line.split(" ")[0] for line in lines] == ["::error", "::warning", "::error"]
    assert all("\n" not in line and line.count("file=a%2Cb%3Ac/kernelwright.yaml,line=3,title=") == 1 for line in lines)
    assert "<script>" not in render_budgets(made).replace("\\<script>", "")


@given(st.floats(-50, 50), st.floats(0, 50), st.floats(-60, 60))
def test_an_interval_decides_one_way_only(low: float, width: float, limit: float) -> None:
    found = decide(low, low + width, limit)
    assert (found == "over") == (low > limit) and (found == "within") == (low + width <= limit)


@given(st.lists(st.tuples(st.floats(1, 1e9), st.floats(0.5, 2)), min_size=3, max_size=12))
def test_the_interval_holds_the_estimate_and_turns_round(pairs: list[tuple[float, float]]) -> None:
    own, other = [time * ratio for time, ratio in pairs], [time for time, _ in pairs]
    pct, low, high = slower_pct(own, other)
    assert low <= pct + 1e-9 and pct <= high + 1e-9
    assert (1 + slower_pct(other, own)[0] / 100) * (1 + pct / 100) == pytest.approx(1)


def test_the_interval_misses_the_truth_as_often_as_it_says() -> None:
    import random

    draw, missed = random.Random(7), 0
    for _ in range(400):
        ratios = [1.02 * draw.lognormvariate(0, 0.01) for _ in range(5)]
        _, low, high = slower_pct(ratios, [1.0] * 5)
        missed += not low <= 2.0 <= high
    assert 6 <= missed <= 36  # 5% of 400 is 20

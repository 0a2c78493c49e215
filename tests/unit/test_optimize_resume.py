"""A search that was interrupted, killed or finished: its ledger, its resume, and what is logged once. Fakes for profiler and judge."""

from __future__ import annotations

import pytest

from kernelwright.devlog import read_log
from kernelwright.model.errors import BadInput
from kernelwright.optimize import OptimizeOptions, optimize
from kernelwright.optimize.ledger import Ledger
from optimizing import (
    NOISY,
    FakeStages,
    a_workload,  # noqa: F401 a fixture
    few_passes,  # noqa: F401 a fixture
    judged_candidates,
    judged_row,
    rows,
    run,
)


def test_a_crash_between_two_confirmations_loses_neither(workload):
    stages = FakeStages({"cuda_graph": 1.5, "optimized:cuda_graph, no_grad": [NOISY, SystemError("killed")]})
    with pytest.raises(SystemError):
        run(workload, stages)
    stages.speedups["optimized:cuda_graph, no_grad"] = 1.4
    before = judged_candidates(stages)
    outcome = run(workload, stages, resume=True)
    assert outcome.kept == ("cuda_graph", "no_grad") and judged_candidates(stages) == before
    assert [effort.timing_s for effort in stages.efforts] == [6.0, 30.0, 30.0]


def test_ctrl_c_leaves_the_best_so_far(workload):
    stages = FakeStages({"cuda_graph": 1.5, "compile_default": KeyboardInterrupt()})
    outcome = run(workload, stages)
    assert outcome.interrupted and outcome.kept == ("cuda_graph", "no_grad") and outcome.speedup == 1.5
    assert outcome.optimized.is_file() and stages.open == 0 and stages.profiled == ["baseline"]
    assert "Interrupted" in outcome.report.read_text() and "compile_default" not in rows(outcome)


def test_ctrl_c_before_anything_was_judged_keeps_nothing(workload):
    outcome = run(workload, FakeStages({"no_grad": KeyboardInterrupt()}))
    assert outcome.interrupted and outcome.kept == () and outcome.report.is_file()


def test_resume_runs_only_what_was_not_finished(workload):
    stages = FakeStages({"cuda_graph": 1.5, "compile_default": KeyboardInterrupt()})
    first = run(workload, stages)
    before = list(stages.judged)
    stages.speedups["compile_default"] = 1.7
    stages.judged.clear()
    second = run(workload, stages, resume=True)
    assert second.out_dir == first.out_dir and stages.profiled.count("baseline") == 1
    assert set(before) & set(stages.judged) == {"compile_default"}, "only the interrupted one runs again"
    assert "compile_default" in rows(second)["compile_default+cuda_graph"].passes
    indices = [row.index for row in Ledger(second.out_dir / "ledger.jsonl").rows]
    assert len(indices) == len(set(indices))


def test_resume_tries_again_what_only_the_budget_stopped(workload):
    stages = FakeStages({"compile_max_autotune": 2.0})
    first = run(workload, stages, budget_s=45.0)
    assert first.kept == () and rows(first)["compile_max_autotune"].status == "out_of_budget"
    second = run(workload, stages, resume=True)
    assert second.kept == ("compile_max_autotune", "no_grad")


@pytest.mark.parametrize(("change", "word"), [
    ("file", "workload"), ("precision", "precision was equal, is bf16"), ("device", "device was cuda, is cpu"),
    ("torch", "torch was 2.11.0, is 2.12.0"), ("params", "parameters was none, is b=4")])
def test_resume_refuses_when_what_decides_the_figures_changed(workload, change, word):
    stages = FakeStages({})
    run(workload, stages)
    options: dict[str, object] = {"resume": True}
    if change == "file":
        workload.path.write_text("# another workload")
    elif change == "params":
        workload = workload.model_copy(update={"params": {"b": "4"}})
    elif change == "precision":
        options["precision"] = "bf16"
    else:
        setattr(stages, change, {"device": "cpu", "torch": "2.12.0"}[change])
    stages.judged.clear()
    with pytest.raises(BadInput, match=word) as caught:
        run(workload, stages, **options)
    assert caught.value.exit_code == 2 and "\n" not in caught.value.line() and stages.judged == []


@pytest.mark.parametrize(("change", "refused"), [
    ({"blocks.py": "x = 2"}, "code/blocks.py changed"), ({"blocks.py": None}, "code/blocks.py changed"),
    ({"mine/kernel.cu": "// other"}, "code/mine/kernel.cu changed"), ({"weights.pt": "other", "beside.py": "y = 2", "new.py": ""}, "")])
def test_resume_refuses_when_the_code_that_a_workload_leads_to_changed(workload, change, refused):
    """Not for data that it names, nor for what it does not lead to."""
    workload.path.write_text("import blocks\nSOURCES = ['mine/kernel.cu', 'weights.pt']\n")
    (workload.path.parent / "mine").mkdir()
    for name in ("blocks.py", "mine/kernel.cu", "weights.pt", "beside.py"):
        (workload.path.parent / name).write_text("")
    stages = FakeStages({})
    outcome = run(workload, stages)
    for name, text in change.items():
        place = workload.path.parent / name
        place.unlink() if text is None else place.write_text(text)
    if not refused:
        assert run(workload, stages, resume=True) == outcome
        return
    with pytest.raises(BadInput, match=f"the earlier run can't go on: {refused}$") as caught:
        run(workload, stages, resume=True)
    assert caught.value.code == "resume_mismatch" and "\n" not in caught.value.line()


def test_resume_without_an_earlier_run_says_so(workload):
    with pytest.raises(BadInput, match="no optimisation to resume"):
        run(workload, FakeStages({}), resume=True)


def test_a_finished_run_is_answered_again_without_judging_profiling_or_logging(workload):
    stages = FakeStages({"cuda_graph": 1.5, "optimized:cuda_graph, no_grad": 1.4})
    first = run(workload, stages)
    counts = len(stages.judged), list(stages.profiled), len(stages.logged), stages.sessions
    report = first.report.read_bytes()
    assert run(workload, stages, resume=True) == first
    assert (len(stages.judged), stages.profiled, len(stages.logged), stages.sessions) == counts and first.report.read_bytes() == report
    first.optimized.unlink()
    again = run(workload, stages, resume=True)
    assert again.optimized.read_bytes() == stages.confirmed and len(stages.judged) == counts[0], "written again, still the confirmed bytes"
    assert len(stages.logged) == counts[2], "nothing new to log"


def test_a_finished_run_that_kept_nothing_is_answered_again_too(workload):
    stages = FakeStages({})
    first = run(workload, stages)
    counts = len(stages.judged), len(stages.logged)
    assert run(workload, stages, resume=True) == first and (len(stages.judged), len(stages.logged)) == counts


def test_an_interrupted_run_is_logged_as_such_and_its_resume_corrects_it(workload):
    stages = FakeStages({"channels_last": KeyboardInterrupt()})
    run(workload, stages)
    assert len(stages.logged) == 1 and stages.logged[0][0].startswith("Interrupted: nothing better"), stages.logged
    stages.speedups = {"compile_max_autotune": 1.5}
    run(workload, stages, resume=True)
    assert len(stages.logged) == 3 and "Interrupted" not in stages.logged[2][0] and "is 1.30x" in stages.logged[2][0]


def test_ctrl_c_in_the_closing_profile_logs_the_baseline_once(workload):
    stages = FakeStages({"cuda_graph": 1.5})
    profile = stages.profile

    def interrupted(workload, folder, baseline, *more):
        if baseline is not None:
            raise KeyboardInterrupt
        return profile(workload, folder, baseline, *more)

    stages.profile = interrupted
    assert run(workload, stages).interrupted and len(stages.logged) == 1
    stages.profile = profile
    assert not run(workload, stages, resume=True).interrupted
    roles = [entry.extra["role"] for entry in read_log(workload.path.parent / "net.devlog.jsonl")[0]]
    assert roles == ["baseline", "optimized"], "the baseline's figures are those of the same judgement"


def test_a_baseline_that_is_logged_again_with_other_figures_says_why(workload):
    stages = FakeStages({"channels_last": KeyboardInterrupt()})
    run(workload, stages)
    stages.speedups = {"compile_max_autotune": 1.5}
    run(workload, stages, resume=True)
    first, again, _optimized = read_log(workload.path.parent / "net.devlog.jsonl")[0]
    assert again.extra["role"] == "baseline" and "baseline of the entry above" in again.insights[0]
    assert first.figures.duration_ns != again.figures.duration_ns


def test_the_only_winner_refuted_is_not_kept_by_a_resume_either(workload):
    stages = FakeStages({"cuda_graph": 1.4, "optimized:cuda_graph, no_grad": 1.0})
    outcome = run(workload, stages)
    assert outcome.kept == () and not (outcome.out_dir / "optimized.py").exists()
    sessions = stages.sessions
    assert run(workload, stages, resume=True).kept == () and stages.sessions == sessions, "nothing to confirm"


def test_resume_of_a_folder_that_is_not_there_creates_nothing(workload, tmp_path):
    with pytest.raises(BadInput, match="no optimisation to resume") as caught:
        optimize(workload, OptimizeOptions(resume=True), tmp_path / "typo", stages=FakeStages({}))
    assert caught.value.exit_code == 2 and "typo" in caught.value.line() and not (tmp_path / "typo").exists()


@pytest.mark.parametrize("cut", [1, 10, 60])
def test_a_ledger_cut_short_by_a_crash_is_repaired(tmp_path, cut):
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger(path)
    ledger.append(judged_row(1, "no_grad"))
    ledger.append(judged_row(2, "cuda_graph"))
    path.write_bytes(path.read_bytes()[:-cut])
    again = Ledger(path)
    assert [item.name for item in again.rows] == ["no_grad"]
    again.append(judged_row(2, "tf32"))
    assert [item.name for item in Ledger(path).rows] == ["no_grad", "tf32"]


def test_an_interrupt_while_a_row_is_synced_loses_it_neither_on_disk_nor_here(tmp_path, monkeypatch):
    ledger = Ledger(tmp_path / "ledger.jsonl")

    def interrupted(_fd):
        raise KeyboardInterrupt

    monkeypatch.setattr("kernelwright.optimize.ledger.os.fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ledger.append(judged_row(1, "no_grad"))
    assert ledger.rows == Ledger(ledger.path).rows and len(ledger.rows) == 1


def test_a_ledger_broken_in_the_middle_is_refused(tmp_path):
    path = tmp_path / "ledger.jsonl"
    path.write_text("{broken}\n" + judged_row(1, "no_grad").model_dump_json() + "\n")
    with pytest.raises(BadInput, match="not a row") as caught:
        Ledger(path)
    assert caught.value.where.endswith("ledger.jsonl:1")


def test_two_optimisations_do_not_share_a_folder(workload):
    stages = FakeStages({})
    problems = []

    def judge(file, precision, seconds, effort):
        with pytest.raises(BadInput, match="another optimisation works") as caught:
            run(workload, FakeStages({}), resume=True)
        problems.append(caught.value.code)
        raise KeyboardInterrupt

    stages.judge = judge
    outcome = run(workload, stages)
    assert problems == ["already_running"]
    assert (outcome.out_dir / ".lock").is_file(), "a removed lock file lets a third one in"

"""Which of the optimiser's own profiles have hardware counters, and what a prediction of them is held against."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

import builders
from kernelwright.model.trial import ExpectedMove, PassPrediction
from kernelwright.model.workload import WorkloadRef
from kernelwright.optimize import stages as stage_module
from kernelwright.optimize.hypothesis import TENSOR_CORES, check, quantity
from kernelwright.optimize.stages import COUNTED_BUDGET_S, OptimizeOptions, RealStages
from kernelwright.pipeline import profile as profile_module


class Asked(Exception):
    pass


@pytest.mark.parametrize(("budget_s", "counted"), [(60.0, False), (COUNTED_BUDGET_S - 1, False), (COUNTED_BUDGET_S, True), (600.0, True)])
def test_a_long_budget_has_counters_in_both_profiles_within_its_time(tmp_path, monkeypatch, budget_s, counted):
    found = {}

    def profile(_workload, _mode, folder, options, say):
        found[folder.name] = options
        raise Asked

    monkeypatch.setattr(stage_module, "profile", profile)
    stages = RealStages(OptimizeOptions(budget_s=budget_s), lambda _line: None)
    workload = WorkloadRef(path=tmp_path / "net.py", name="net")
    measured = builders.gpu_annotation().model_copy(update={"counters": object() if counted else None})
    for name, baseline, timeout_s in (("baseline", None, budget_s), ("after", measured, 50.0)):
        with pytest.raises(Asked):
            stages.profile(workload, tmp_path / name, baseline, timeout_s)
    assert {options.counters.choice for options in found.values()} == ({"default"} if counted else {"none"})
    if counted:
        assert found["after"].counters.within_s == 50.0, "the closing profile and the report take 60 s at most"
        assert found["baseline"].counters.within_s <= budget_s / 4


@pytest.mark.parametrize(("budget_s", "had"), [(600.0, False), (60.0, True)])
def test_a_resume_with_another_budget_does_as_the_baseline_did(tmp_path, monkeypatch, budget_s, had):
    found = []
    monkeypatch.setattr(stage_module, "profile", lambda *args, **_: found.append(args[3]) or (_ for _ in ()).throw(Asked))
    baseline = builders.gpu_annotation().model_copy(update={"counters": object() if had else None})
    with pytest.raises(Asked):
        RealStages(OptimizeOptions(budget_s=budget_s), lambda _line: None).profile(
            WorkloadRef(path=tmp_path / "net.py", name="net"), tmp_path / "after", baseline, 50.0)
    assert found[0].counters.choice == ("default" if had else "none")


def test_optimized_py_is_profiled_by_the_interpreter_that_the_workload_was(tmp_path, monkeypatch):
    """The nearest .venv of an --out elsewhere may have another torch."""
    asked = []

    def found(python, near, device, say):
        asked.append(near)
        if len(asked) > 1:
            raise Asked
        return SimpleNamespace(torch_build="cpu", torch_version="2.11.0")

    for module in (stage_module, profile_module):
        monkeypatch.setattr(module, "find_interpreter", found)
    workload, optimized = tmp_path / "project" / "net.py", tmp_path / "out" / "optimized.py"
    for file in (workload, optimized):
        file.parent.mkdir()
        file.write_text("def get_model_and_input():\n    pass\n")
    stages = RealStages(OptimizeOptions(device="cpu"), lambda _line: None)
    assert stages.where(WorkloadRef(path=workload, name="net")) == {"device": "cpu", "torch": "2.11.0"}
    with pytest.raises(Asked):
        stages.profile(WorkloadRef(path=optimized, name="net"), tmp_path / "after", builders.gpu_annotation(), 50.0)
    assert asked == [workload, workload]


def test_what_a_pass_predicts_of_counters_is_held_against_both_profiles():
    def counted(gigabytes: float):
        profile = builders.gpu_annotation()
        amounts = {"total_dram_bytes_read": 0.75 * gigabytes * 1e9, "total_dram_bytes_written": 0.25 * gigabytes * 1e9}
        operators = tuple(one.model_copy(update={"aggregated": one.aggregated.model_copy(update=amounts)}) for one in profile.operators)
        return profile.model_copy(update={"operators": operators})

    said = PassPrediction(name="fuse", words="w", gain=(1.0, 2.0), moves=(ExpectedMove(quantity="DRAM bytes", low=0.4, high=0.6),))
    halved, same, unknown = (check([said], counted(2.0), after)[0] for after in (counted(1.0), counted(2.0), builders.gpu_annotation()))
    assert (halved.result, halved.moves[0].ratio) == ("confirmed", pytest.approx(0.5))
    assert (same.result, unknown.result) == ("not seen", "not checked")


def test_bytes_of_the_few_kernels_without_counters_are_taken_to_be_in_proportion_to_their_time():
    def counted(*gigabytes: float | None):
        operators = builders.operators(tuple(f"aten::op{place}" for place in range(len(gigabytes))), 1, 1000)
        given = tuple(one.model_copy(update={"aggregated": one.aggregated.model_copy(update={
            "total_dram_bytes_read": size, "total_dram_bytes_written": None if size is None else 0.0,
            "total_duration_ns": 19_000 if place == 0 else 1_000})})
            for place, (one, size) in enumerate(zip(operators, gigabytes, strict=True)))
        profile = builders.gpu_annotation()
        return profile.model_copy(update={"operators": given, "timeline": profile.timeline.model_copy(update={"steps": 1})})

    assert quantity("DRAM bytes", counted(19e9, None)) == pytest.approx(20e9) == quantity("DRAM bytes", counted(19e9, 1e9))
    assert quantity("DRAM bytes", counted(19e9, None, None, None)) is None, "19 of 22 parts of the time"


def with_tensor_cores(*shares: float | None):
    """A profile whose operators take 3, 1, 1, ... parts of the time and have these shares."""
    operators = builders.operators(tuple(f"aten::mm{place}" for place in range(len(shares))), 1, 1000)
    given = tuple(one.model_copy(update={"aggregated": one.aggregated.model_copy(update={
        "tensor_core_active_pct": share, "total_duration_ns": 30_000 if place == 0 else 1_000})})
        for place, (one, share) in enumerate(zip(operators, shares, strict=True)))
    profile = builders.gpu_annotation()
    return profile.model_copy(update={"operators": given, "timeline": profile.timeline.model_copy(update={"steps": 1})})


def test_tensor_cores_that_were_idle_before_are_seen_to_work():
    """Seen on an H100: products split for them, 0% before, 47% after; a ratio to nothing said "not measured"."""
    said = PassPrediction(name="split", words="w", gain=(1.0, 4.0), moves=(ExpectedMove(quantity=TENSOR_CORES, low=2.0, high=100.0),))

    def result(before: float | None, after: float | None) -> str:
        return check([said], with_tensor_cores(before), with_tensor_cores(after))[0].result

    assert result(0.0, 47.2) == "confirmed" and result(20.0, 45.0) == "confirmed"
    assert result(0.0, 0.3) == "not seen" and result(30.0, 31.0) == "not seen" and result(0.0, None) == "not checked"


def test_counters_of_the_heaviest_kernels_speak_for_all_where_they_hold_nine_tenths_of_the_time():
    assert quantity(TENSOR_CORES, with_tensor_cores(40.0, 10.0, None)) == pytest.approx((30 * 40 + 10) / 31), "31 of 32 parts"
    assert quantity(TENSOR_CORES, with_tensor_cores(40.0, None, None, None, None)) is None, "30 of 34"
    assert quantity(TENSOR_CORES, with_tensor_cores(None, 10.0)) is None

"""Which of the optimiser's own profiles have hardware counters, and what a prediction of them is held against."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

import builders
from kernelwright.model.profile import Metrics
from kernelwright.model.trial import ExpectedMove, PassPrediction
from kernelwright.model.workload import WorkloadRef
from kernelwright.optimize import stages as stage_module
from kernelwright.optimize.hypothesis import TENSOR_CORES, check, quantity
from kernelwright.optimize.passes.conditions import BUSY_CORES
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


READ, WRITTEN, TENSOR = "dram__bytes_read.sum", "dram__bytes_write.sum", "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed"
GRAPH = "cudaGraphLaunch"


def with_counters(*kernels: tuple[str, float, dict[str, float]], copies_us: float = 0.0):
    """One step: (operator, duration in us, ncu metrics) of each kernel, and after them copies, which ncu does not count."""
    plain = builders.operators(tuple(name for name, _, _ in kernels), 1, 1000)

    def lasting(us: float, kernel, **changes):
        return kernel.model_copy(update={"duration_ns": round(us * 1e3), **changes})

    given = [one.model_copy(update={"kernels": (lasting(us, one.kernels[0], metrics=Metrics(raw=raw)),)})
             for one, (_, us, raw) in zip(plain, kernels, strict=True)]
    if copies_us:
        copy = lasting(copies_us, plain[-1].kernels[0], category="memcpy", metrics=Metrics())
        given[-1] = given[-1].model_copy(update={"kernels": (*given[-1].kernels, copy)})
    profile = builders.gpu_annotation()
    return profile.model_copy(update={"operators": tuple(given), "unattributed_kernels": (),
                                      "timeline": profile.timeline.model_copy(update={"steps": 1})})


def moving(gigabytes: float | None) -> dict[str, float]:
    return {} if gigabytes is None else {READ: 0.75e9 * gigabytes, WRITTEN: 0.25e9 * gigabytes}


def with_tensor_cores(*shares: float | None):
    """Products that take 30, 1, 1, ... parts of the time and have these shares."""
    return with_counters(*((f"aten::mm{place}", 1.0 if place else 30.0, {} if share is None else {TENSOR: share})
                           for place, share in enumerate(shares)))


def test_what_a_pass_predicts_of_counters_is_held_against_both_profiles():
    def counted(gigabytes: float | None):
        return with_counters(("aten::mm", 9.0, moving(gigabytes)), ("aten::add", 9.0, moving(gigabytes)))

    said = PassPrediction(name="fuse", words="w", gain=(1.0, 2.0), moves=(ExpectedMove(quantity="DRAM bytes", low=0.4, high=0.6),))
    halved, same, unknown = (check([said], counted(2.0), after)[0] for after in (counted(1.0), counted(2.0), counted(None)))
    assert (halved.result, halved.moves[0].ratio) == ("confirmed", pytest.approx(0.5))
    assert (same.result, unknown.result) == ("not seen", "not checked")


def test_bytes_of_the_few_kernels_without_counters_are_taken_to_be_in_proportion_to_their_time():
    def counted(*gigabytes: float | None):
        return with_counters(*((f"aten::op{place}", 1.0 if place else 19.0, moving(one)) for place, one in enumerate(gigabytes)))

    assert quantity("DRAM bytes", counted(19.0, None)) == pytest.approx(20e9) == quantity("DRAM bytes", counted(19.0, 1.0))
    assert quantity("DRAM bytes", counted(19.0, None, None, None)) is None, "19 of 22 parts of the time"


def test_copies_are_no_kernels_that_lack_their_counters():
    """A CUDA graph of the whole call has its inputs copied in: 15% of the time of a short one."""
    alone, beside = (with_counters((GRAPH, 85.0, moving(3.0) | {TENSOR: 20.0}), copies_us=copies_us) for copies_us in (0.0, 15.0))
    for name in ("DRAM bytes", TENSOR_CORES):
        assert quantity(name, alone) == quantity(name, beside) is not None


def test_tensor_cores_that_were_idle_before_are_seen_to_work():
    """Seen on an H100: products split for them, 0% before, 47% after; a ratio to nothing said "not measured"."""
    said = PassPrediction(name="split", words="w", gain=(1.0, 4.0), moves=(ExpectedMove(quantity=TENSOR_CORES, low=2.0, high=100.0),))

    def result(before: float | None, after: float | None) -> str:
        return check([said], with_tensor_cores(before), with_tensor_cores(after))[0].result

    assert result(0.0, 47.2) == "confirmed" and result(20.0, 45.0) == "confirmed"
    assert result(0.0, 0.3) == "not seen" and result(30.0, 31.0) == "not seen" and result(0.0, None) == "not checked"


def test_a_graph_stands_for_the_products_that_it_hides():
    """Seen on an H200: four float32 products, then everything in one graph, its tensor cores busy for 21.6% of the time: not checked,
    since no operator in it is called a product."""
    said = PassPrediction(name="split_products", words="w", gain=(1.0, 3.7), moves=(
        ExpectedMove(quantity=BUSY_CORES.quantity, low=BUSY_CORES.low, high=BUSY_CORES.high, operators=BUSY_CORES.operators),))
    before = with_counters(("aten::addmm", 250.0, {TENSOR: 0.0}), ("aten::tanh", 6.0, {TENSOR: 0.0}))
    graphs = {share: with_counters((GRAPH, 72.8, {TENSOR: share}), copies_us=2.7) for share in (21.6, 1.5)}
    found = check([said], before, graphs[21.6])[0]
    assert found.result == "confirmed" and found.words == "tensor-core share x21.60 (of the whole call)"
    assert found.moves[0].operators == "" and (found.moves[0].before, found.moves[0].after) == (0.0, pytest.approx(21.6))
    assert check([said], before, graphs[1.5])[0].result == "not checked", "its other kernels may be what lowers the share"
    assert check([said], graphs[1.5], graphs[21.6])[0].result == "confirmed", "one graph against another"
    busy = with_counters(("aten::addmm", 100.0, {TENSOR: 0.0}), ("aten::_flash_attention", 200.0, {TENSOR: 60.0}))
    assert check([said], busy, with_counters((GRAPH, 300.0, {TENSOR: 41.4})))[0].result == "not checked", "attention worked them before"
    alone = with_counters(("aten::mm", 70.0, {TENSOR: 41.5}))
    slow = with_counters((GRAPH, 5.0, {TENSOR: 90.0}), ("aten::mm", 300.0, {TENSOR: 0.1}))
    assert check([said], before, alone)[0].words == "tensor-core share x41.50"
    assert check([said], before, slow)[0].result == "not seen", "the products are beside the graph"
    assert check([said], graphs[1.5], alone)[0].result == "not checked", "of a graph before it is not known which kernels are meant"


def test_counters_of_the_heaviest_kernels_speak_for_all_where_they_hold_nine_tenths_of_the_time():
    assert quantity(TENSOR_CORES, with_tensor_cores(40.0, 10.0, None)) == pytest.approx((30 * 40 + 10) / 31), "31 of 32 parts"
    assert quantity(TENSOR_CORES, with_tensor_cores(40.0, None, None, None, None)) is None, "30 of 34"
    assert quantity(TENSOR_CORES, with_tensor_cores(None, 10.0)) is None

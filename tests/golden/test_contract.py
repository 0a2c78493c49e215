"""The output contract: its exact form, whatever the profile holds."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

import builders
from contract_format import check_contract, split_row
from golden_files import assert_golden
from kernelwright.model.measurement import PAIRED
from kernelwright.model.profile import Bottleneck, Profile
from kernelwright.model.workload import TensorSpec
from kernelwright.report import render_contract
from kernelwright.report.contract import token_count
from property_examples import examples

CASES = {
    "gpu_annotation": builders.gpu_annotation(), "with_counters": builders.with_counters(), "cpu_annotation": builders.cpu_annotation(),
    "event": builders.event(), "no_peaks": builders.no_peaks(), "many_stages": builders.many_stages(), "hostile": builders.hostile(),
}


@pytest.mark.parametrize("name", CASES)
def test_golden(name: str) -> None:
    text = render_contract(CASES[name])
    assert check_contract(text, baseline=False) == []
    assert_golden(f"contract_{name}.md", text)


def test_golden_with_baseline() -> None:
    text = render_contract(builders.with_counters(timing=builders.timing(900.0), work=builders.work(900.0)), builders.gpu_annotation())
    assert check_contract(text, baseline=True) == []
    assert_golden("contract_baseline.md", text)


def test_change_within_noise_is_called_so() -> None:
    before, now = builders.event(timing=builders.timing(1000.0, 0.05)), builders.event(timing=builders.timing(995.0, 0.05))
    text = render_contract(now, before)
    assert "| Duration (us) | 1000.00 | 995.00 | 0.5% faster (within noise) |" in text
    assert check_contract(text, baseline=True) == []


@pytest.mark.parametrize(("spread", "mark"), [(0.3, "(too noisy to compare)"), (0.05, "(within noise)")])
def test_every_row_that_rests_on_a_noisy_duration_says_so(spread: float, mark: str) -> None:
    before, now = (builders.cpu_annotation(timing=builders.timing(us, spread), work=builders.work(us),
                                           stages=(builders.stage("aten::mm", us, 100.0),)) for us in (1000.0, 990.0))
    rows = [line for line in render_contract(now, before).split("### vs Baseline")[1].splitlines() if "(us)" in line or "Achieved" in line]
    assert len(rows) == 4 and all(mark in row for row in rows) and rows[3].startswith("| Operator time (us) |")


def test_beside_the_judges_duration_the_profiles_own_times_are_no_gain() -> None:
    before, now = (builders.cpu_annotation(timing=builders.timing(us, 0.01), work=builders.work(us),
                                           stages=(builders.stage("aten::mm", us, 100.0),)) for us in (1000.0, 500.0))
    assert now.timing is not None
    now = now.model_copy(update={"timing": now.timing.model_copy(update={"timer": f"perf_counter, {PAIRED}"})})
    text = render_contract(now, before)
    row = next(line for line in text.splitlines() if line.startswith("| Operator time"))
    assert row.endswith("% (two profiles, not paired) |") and "faster" not in row, row
    assert check_contract(text, baseline=True) == []


def test_unmeasured_figures_are_na() -> None:
    row = next(line for line in render_contract(builders.no_peaks()).split("\n") if line.startswith("| (whole call)"))
    assert split_row(row) == ["(whole call)", "1000.00", "n/a", "n/a", "n/a", "n/a", "n/a"]


def test_a_call_that_was_not_even_timed() -> None:
    text = render_contract(builders.no_peaks(timing=None))
    assert "| (whole call) | n/a |" in text
    assert check_contract(text) == []


def test_stages_beyond_the_room_are_summed() -> None:
    profile = builders.many_stages(500)
    rows = [split_row(line) for line in render_contract(profile).split("\n") if line.startswith(("| stage ", "| ("))]
    shown = sum(float(row[1]) for row in rows)
    assert shown == pytest.approx(sum(stage.duration_ns for stage in profile.stages) / 1000, abs=0.1)
    assert [row[0] for row in rows][-1] == f"({500 - len(rows) + 1} other stages)"
    assert [float(row[1]) for row in rows[:-1]] == sorted((float(row[1]) for row in rows[:-1]), reverse=True)


def test_without_parameters_the_input_shapes_stand_in() -> None:
    inputs = (TensorSpec(path="0", shape=(16, 3, 64, 64), dtype="float32", device="cpu"),
              TensorSpec(path="batch.mask", shape=(), dtype="bool", device="cpu"))
    lines = render_contract(builders.cpu_annotation(inputs=inputs)).split("\n")
    assert lines[3:6] == ["| input[0] | batch.mask | dtype |", "|----------|------------|-------|", "| 16x3x64x64 | scalar | float32 |"]


def test_parameters_keep_their_order() -> None:
    lines = render_contract(builders.event(parameters={"z": 1, "a": True, "m": None, "s": ""})).split("\n")
    assert lines[3:6] == ["| z | a | m | s |", "|---|---|---|---|", '| 1 | True | None | "" |']


def test_root_cause_is_cut_to_two_sentences() -> None:
    cause = Bottleneck(kind="Compute", root_cause="It reaches 61.5% of 3.2 TFLOP/s. It waits. It has a third. And a fourth.")
    assert "Root cause: It reaches 61.5% of 3.2 TFLOP/s. It waits.\n" in render_contract(builders.event(bottleneck=cause))


def test_distance_to_the_roof_stands_in_for_missing_findings() -> None:
    text = render_contract(builders.event(findings=()))
    assert "1. Close the distance to the binding roof — est. 70.7% gain — trigger: bandwidth_pct=29.3%\n" in text


def test_gains_are_held_to_a_hundred_percent() -> None:
    text = render_contract(builders.event(findings=(builders.finding("a", 250.0), builders.finding("b", -3.0))))
    assert "1. a — est. 100.0% gain" in text and "2. b — est. 0.0% gain" in text


TEXT = st.text(max_size=700) | st.just(builders.HOSTILE * 4) | st.just("|" * 600) | st.just("\\`<a" * 200)


@st.composite
def profiles(draw: st.DrawFn) -> Profile:
    """Profiles with any names and any number of stages, parameters and findings."""
    positive = st.floats(0, 1e12, allow_nan=False)
    share = st.none() | st.floats(0, 100)
    stages = [builders.stage(draw(TEXT), draw(positive), 1.0, key_issue=draw(st.none() | TEXT), tc_pct=draw(share), dram_pct=draw(share),
                             bottleneck=draw(st.sampled_from([None, "Memory", "Latency"]))) for _ in range(draw(st.integers(0, 30)))]
    findings = [builders.finding(draw(TEXT), draw(st.floats(-10, 1e6)), draw(TEXT)) for _ in range(draw(st.integers(0, 5)))]
    parameters = draw(st.dictionaries(st.text(min_size=1, max_size=90), TEXT | st.integers() | st.booleans(), max_size=60))
    return builders.gpu_annotation(
        stages=tuple(stages), findings=tuple(findings), parameters=parameters,
        capture_metadata=builders.metadata(model_name=draw(TEXT), version=draw(st.none() | TEXT)),
        bottleneck=Bottleneck(kind=draw(st.sampled_from([None, "Memory", "Compute", "Latency"])), root_cause=draw(TEXT)))


@examples(40, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(profiles(), st.booleans())
def test_any_profile_keeps_the_format_and_the_budget(profile: Profile, with_baseline: bool) -> None:
    text = render_contract(profile, profile if with_baseline else None)
    assert check_contract(text, baseline=with_baseline) == []
    assert token_count(text) < 1500


@pytest.mark.parametrize("cut", ["Configuration", "| Stage |", "Root cause:", "1. ", "trigger", "|-------|"])
def test_the_checker_sees_a_missing_line(cut: str) -> None:
    good = render_contract(CASES["gpu_annotation"])
    bad = "\n".join(line for line in good.split("\n") if cut not in line)
    assert bad != good and check_contract(bad) != []

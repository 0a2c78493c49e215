"""What a search says at its end: its answer, report, log and contract, by the judge's durations. Fakes for profiler and judge."""

from __future__ import annotations

import json

import pytest

from kernelwright.cli.optimize import _data
from kernelwright.diagnose import diagnose
from kernelwright.model.measurement import Measurement
from kernelwright.model.profile import ClockReading
from kernelwright.model.verdict import Comparison, Verdict
from kernelwright.optimize import OptimizeOptions, optimize
from kernelwright.optimize.paired import paired, restated
from kernelwright.optimize.passes import CATALOGUE
from kernelwright.pipeline.profile import ProfileRun
from optimizing import (
    CONVOLUTIONAL,
    FakeStages,
    a_workload,  # noqa: F401 a fixture
    few_passes,  # noqa: F401 a fixture
    profile_of,
    run,
    verdict,
)


def test_the_answer_says_precision_confirmation_clocks_and_warnings(workload):
    outcome = run(workload, FakeStages({"cuda_graph": 1.5, "optimized:cuda_graph, no_grad": 1.4}))
    assert (outcome.precision, outcome.confirmed, outcome.clocks) == ("equal", True, None)
    answer = _data(outcome)
    assert set(answer) >= {"kept", "speedup", "interval", "optimized", "report", "devlog", "contract", "out_dir"}
    assert (answer["precision"], answer["confirmed"], answer["clocks"], answer["warnings"]) == ("equal", True, None, list(outcome.warnings))
    nothing = _data(run(workload, FakeStages({})))
    assert nothing["precision"] is None and nothing["confirmed"] is None


def kept_section(outcome) -> str:
    return outcome.report.read_text().partition("## Kept")[2].partition("\n## ")[0]


def test_the_report_says_what_running_without_gradients_means(workload):
    """A speed-up over an original that records gradients is no praise of the other passes alone."""
    outcome = run(workload, FakeStages({"no_grad": 1.2, "cuda_graph": 1.5, "optimized:cuda_graph, no_grad": 1.4}))
    assert "no_grad alone: 1.20x [" in kept_section(outcome) and "; the original was timed with gradients on" in kept_section(outcome)
    assert "outputs of optimized.py carry no gradient" in kept_section(outcome)
    unjudged = run(workload, FakeStages({"no_grad": verdict("FAILED"), "cuda_graph": 1.5, "optimized:cuda_graph, no_grad": 1.4}))
    assert "no_grad was not judged alone; the original was timed with gradients on" in kept_section(unjudged)
    alone = run(workload, FakeStages({"no_grad": 1.5, "optimized:no_grad": 1.5}))
    assert "alone" not in kept_section(alone) and "The original was timed with gradients on" in kept_section(alone)


def test_the_report_has_the_baselines_warnings_and_the_spread_of_the_originals_durations(workload):
    def slow(name: str, factor: float) -> Verdict:
        whole = verdict(name, 0.9)
        times = Measurement.of([factor * 1e6] * 9, timer="perf_counter")
        return whole.model_copy(update={"comparison": whole.comparison.model_copy(update={"reference": times})})

    stages = FakeStages({"no_grad": slow("SLOWER", 18.0)})
    noisy = Measurement.of([1e6, 2e6, 3e6, 4e6, 5e6], timer="perf_counter")
    real = stages.profile

    def profile(*args):
        made = real(*args)
        loud = made.profile.model_copy(update={"timing": noisy, "warnings": ("the machine was busy (load 4.1 on 2 CPUs)",)})
        return ProfileRun(loud, made.out_dir, made.result)

    stages.profile = profile
    report = run(workload, stages).report.read_text()
    warnings = report.split("## Warnings")[1].split("## Limits")[0]
    assert "the original's duration differed 18.0-fold within this run (1000.00 to 18000.00 us)" in warnings
    assert "the baseline's timing: noisy" in warnings and "load 4.1 on 2 CPUs" in warnings
    assert "1000.00 to 18000.00 us (" in report.split("## Kept")[0]


def test_one_candidate_is_not_called_candidates(workload):
    names = iter(["no_grad"])
    stages = FakeStages({})
    real = stages.judge

    def judge(file, precision, seconds, effort):
        if next(names, None) is None:
            raise KeyboardInterrupt
        return real(file, precision, seconds, effort)

    stages.judge = judge
    assert "(1 candidate judged;" in run(workload, stages).line


def test_log_and_contract_show_the_judged_durations_not_two_unpaired_profiles(workload):
    stages = FakeStages({"cuda_graph": 1.5, "optimized:cuda_graph, no_grad": 1.14})
    outcome = run(workload, stages)
    log = (workload.path.parent / "net.devlog.md").read_text()
    contract = outcome.contract.read_text()
    for text in (log, contract):
        assert "12.3% faster" in text and "% slower" not in text and "within noise" not in text, text
    assert "| Duration (us) | 1000.00 | 877.19 | 12.3% faster |" in contract
    assert "durations of this entry and of the baseline's before it are the judge's" in log
    assert stages.stood_beside.timing.timer == "cuda_events, paired, by the judge"
    assert "| Duration (us) | 1000.00 | 877.19 |" in outcome.report.read_text()


def test_a_clear_pair_is_never_within_noise_and_its_sign_is_the_verdicts():
    old, new = (Measurement.of([0.8 * ns, 0.9 * ns, *[ns] * 3, 1.1 * ns, 1.2 * ns], timer="perf_counter") for ns in (1e6, 1.001e6))
    comparison = Comparison(reference=old, candidate=new, speedup=1.02, interval=(1.01, 1.03), pairs=7, blocks=7,
                            smallest_detectable_effect_pct=1.0, method="fake")
    before, after = paired(comparison)
    assert before.ci95_low_ns > after.ci95_high_ns and after.median_ns < before.median_ns
    assert after.ci95_low_ns == pytest.approx(1e6 / 1.03) and after.ci95_high_ns == pytest.approx(1e6 / 1.01)


def test_restated_rates_are_over_the_new_time():
    document = profile_of("cuda", CONVOLUTIONAL)
    half = Measurement.of([document.timing.median_ns / 2] * 9, timer="cuda_events")
    new = restated(document, half)
    assert new.work.achieved_compute.value == pytest.approx(2 * document.work.achieved_compute.value)
    assert new.work.compute_pct == pytest.approx(2 * document.work.compute_pct) and new.timing == half and new.warnings
    assert restated(document, None) == document
    near = Measurement.of([document.timing.median_ns / 1.4] * 9, timer="cuda_events")
    assert "2.0-fold" in new.warnings[-1] and "-fold" not in restated(document, near).warnings[-1]
    # What rests on the time goes with it: the roof's distance of the call, and nothing is told twice.
    gain = {name: next(f.estimated_gain_pct for f in one.findings if f.rule == "roof_distance")
            for name, one in (("old", diagnose(document.model_copy(update={"abstained": ()}))), ("new", new))}
    assert gain["new"] < gain["old"] and len({one.name for one in new.abstained}) == len(new.abstained)


def test_where_nothing_is_kept_the_duration_before_is_the_judges_where_it_timed(workload):
    report = run(workload, FakeStages({})).report.read_text()
    assert "| Duration (us) | 1000.00 | n/a |" in report and "is the median of these" in report
    assert "(10 timings: the baseline profile's, 9 of the judge's)" in report
    stages = FakeStages({"no_grad": KeyboardInterrupt()})
    report = run(workload, stages, budget_s=999.0).report.read_text()
    assert "the baseline profile's, since the judge timed nothing" in report and "| Duration (us) | 1050.00 |" in report


def judged_at(name: str, before_ns: float, after_ns: float, speedup: float) -> Verdict:
    """A verdict whose two medians are these."""
    one = verdict(name, speedup)
    before, after = (Measurement.of([ns] * 9, timer="perf_counter") for ns in (before_ns, after_ns))
    return one.model_copy(update={"comparison": one.comparison.model_copy(update={"reference": before, "candidate": after})})


def test_durations_too_far_apart_for_one_figure_are_a_range(workload):
    every = {name: judged_at("SAME", 4e6, 4e6, 1.0) for name in CATALOGUE}
    report = run(workload, FakeStages(every)).report.read_text()
    assert "| Duration (us) | 1050.00 to 4000.00 | n/a |" in report and "is the range of these, too far apart for one figure" in report
    low, high = next(line for line in report.splitlines() if line.startswith("| Achieved GB/s")).split("|")[2].split(" to ")
    assert float(high) / float(low) == pytest.approx(4000 / 1050, rel=0.01)


def test_a_ladder_row_says_when_its_medians_are_not_its_speed_up(workload):
    report = run(workload, FakeStages({"compile_default": judged_at("FASTER", 1e6, 0.2e6, 1.6), "no_grad": 1.1})).report.read_text()
    rows = [line for line in report.partition("compile ladder")[2].splitlines() if line.startswith(("| compile_default", "| no_grad"))]
    assert [("medians' ratio is 5.00" in row) for row in sorted(rows)] == [True, False]


def test_the_noise_of_the_judgement_that_counts_and_a_baseline_timing_of_its_own_are_told(workload):
    noisy = judged_at("FASTER", 2e6, 1e6, 2.0)
    comparison = noisy.comparison.model_copy(update={"reference": noisy.comparison.reference.model_copy(update={"warning": "noisy: x"})})
    said = noisy.model_copy(update={"comparison": comparison})
    report = run(workload, FakeStages({"cuda_graph": said, "optimized:cuda_graph, no_grad": said})).report.read_text()
    assert "- the judgement that counts: original noisy: x; the interval of the speed-up has that in it" in report
    assert "timed the original with 1050.00 us, by itself" in report, "2000 us in pairs"
    assert "by itself" not in run(workload, FakeStages({"cuda_graph": 1.5})).report.read_text()


def test_the_report_states_the_judges_limit_and_the_mode_at_optimisation(workload):
    report = run(workload, FakeStages({"cuda_graph": 1.5})).report.read_text()
    assert "at most twice that of the original" in report and "no less accurate" not in report
    assert "the train or eval mode it had when `optimize` was called" in report and "a gradient, train mode" not in report


def test_the_report_has_the_clocks_of_the_whole_run(workload):
    stages = FakeStages(speedups={})
    clocks = ClockReading(requested="lock", locked=True, locked_mhz=1500, sm_mhz_min=1500, sm_mhz_max=1500, samples=9, sm_mhz_median=1500,
                          warnings=("other processes use this GPU: train (process 7, 3 MiB)",))
    outcome = optimize(workload, OptimizeOptions(budget_s=1000.0), stages=stages, clock=stages.clock, clocks=lambda: clocks)
    report = outcome.report.read_text()
    assert "Clocks: locked at 1500 MHz (asked for: lock); SM 1500 to 1500 MHz seen in 9 samples under load, median 1500." in report
    assert "train (process 7, 3 MiB)" in report.partition("## Warnings")[2].partition("## Limits")[0]
    assert json.loads((outcome.out_dir / "report.json").read_text())["clocks"]["locked_mhz"] == 1500

"""The profiler's overhead on a script's steps: told where it was seen, never as a gain."""

import pytest

import builders
from kernelwright.model.capture import ProbeResult, ProbeScriptSteps
from kernelwright.model.measurement import Measurement
from kernelwright.pipeline.script import script_steps
from kernelwright.report.figures import duration_warning


@pytest.mark.parametrize(("bare", "profiled", "overhead", "note"), [
    ((10.0, 11.0, 12.0), (15.0, 16.0), 4.5, ""),
    ((10.0,), (15.0, 16.0), 5.5, "from 1 unprofiled step only"),
    ((10.0, 30.0, 31.0), (20.0, 32.0), None, "below the noise"),
    ((40.0,), (15.0, 16.0), None, "still warming up"),
    ((), (15.0, 16.0), None, "no step was timed without the profiler"),
])
def test_overhead(bare, profiled, overhead, note):
    steps = ProbeScriptSteps(steps_from=None, steps_seen=10, warmup_steps=2, unprofiled_ns=bare, profiled_ns=profiled, stacks_steps=1,
                             run_to_end=False, tries=1)
    told = script_steps(ProbeResult(status="ok", script=steps, trace_file="trace.json.gz"))
    assert (told.overhead_per_step.value if told.overhead_per_step else None) == overhead
    assert (told.overhead_ratio is None) == (overhead is None) and note in told.overhead_note


@pytest.mark.parametrize(("free", "doubt"), [(1.44e9, "slower than the steps under the profiler (920000.00 us)"), (0.9e9, None)])
def test_a_step_timed_slower_without_the_profiler_is_in_doubt(free, doubt):
    """Said where the time is shown: on stderr's last line, in --json, comparisons and the log."""
    from kernelwright.cli.profile_kernel import call_line

    steps = ProbeScriptSteps(steps_from=None, steps_seen=10, warmup_steps=2, unprofiled_ns=(free,) * 9, profiled_ns=(0.92e9, 1.5e9, 0.8e9),
                             stacks_steps=1, run_to_end=False, tries=1)
    timing = Measurement.of([free] * 9, timer="perf_counter")
    script = script_steps(ProbeResult(status="ok", script=steps, trace_file="trace.json.gz"))
    profile = builders.cpu_annotation(timing=timing, script=script)
    assert (doubt in call_line(profile)) if doubt else ("slower" not in call_line(profile))
    assert (duration_warning(profile) is None) == (doubt is None)

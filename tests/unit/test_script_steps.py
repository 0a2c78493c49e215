"""The profiler's overhead on a script's steps: told where it was seen, never as a gain."""

import pytest

from kernelwright.model.capture import ProbeResult, ProbeScriptSteps
from kernelwright.pipeline.script import script_steps


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

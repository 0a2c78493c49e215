"""A script's profile: how it is run, and what is made of its steps' times."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from statistics import median

from ..capture.interpreter import Interpreter
from ..capture.sandbox import LINKED_FOLDERS, Sandbox
from ..capture.script import run_script
from ..model.base import Evidence, Figure
from ..model.capture import ProbeRequest, ProbeResult, ProbeScript, ProbeScriptSteps
from ..model.errors import BadInput
from ..model.profile import Operator, ScriptSteps
from ..model.saying import Say
from ..model.workload import WorkloadRef
from .forms import script_parameters

FEW_SAMPLES = 3
MOST_NAMED = 8
EARLY_EXIT = ("warning: the script will be ended after its last recorded step, as by sys.exit(): that may trigger a final save of its own; "
              "--sandbox keeps what it writes beside its files away from them, --run-to-end lets it finish")


def check_script(workload: WorkloadRef, *, compile_mode: str, flush_l2: bool, warmup: int | None, steps_from: str | None) -> None:
    """Refuse options that mean nothing for a script. Raises BadInput."""
    where = str(workload.path)
    if workload.version is not None:
        raise BadInput("no_versions", f"version {workload.version!r} asked for, but the file is a script", where=where,
                       fix="leave the version out; a script's own arguments go after --")
    if compile_mode != "eager":
        raise BadInput("compile_mode_of_script", "--compile-mode does not apply to a script: it compiles what it compiles", where=where,
                       fix="leave it out; use the script's own option, if it has one")
    if flush_l2:
        raise BadInput("flush_l2_of_script", "--flush-l2 does not apply to a script", where=where, fix="leave it out")
    if warmup == 0 and steps_from is None:
        raise BadInput("warmup_of_script", "a script needs one warm-up step: nobody sees where its first optimizer step begins",
                       where="--warmup 0", fix="use --warmup 1, or count ranges with --steps-from RANGE")


def capture_script(request: ProbeRequest, workload: WorkloadRef, interpreter: Interpreter, *, folder: Path, leave_out: Path,
                   sandbox: bool, timeout_s: float | None, say: Say, stdout_to_stderr: bool) -> ProbeResult:
    """Run the script once. folder: of this run; leave_out: our results, which a sandbox does not copy. Raises BadInput, WorkloadFailed."""
    assert workload.script is not None and request.script is not None
    cwd = Path.cwd()
    if not sandbox:
        return run_script(request, interpreter, cwd=cwd, timeout_s=timeout_s, say=say, stdout_to_stderr=stdout_to_stderr)
    try:
        scratch = Sandbox.make(cwd, folder / "sandbox", without=leave_out)
    except OSError as error:
        raise BadInput("no_sandbox", f"can't make the scratch folder: {error.strerror or error}", where=str(folder / "sandbox"),
                       fix="free some space, or name another folder with --out DIR") from error
    try:
        linked = [name for name in scratch.linked if Path(name).name not in LINKED_FOLDERS]
        if linked:
            more = f" and {len(linked) - MOST_NAMED} more" if len(linked) > MOST_NAMED else ""
            say(f"warning: in the sandbox these lead to the originals, which a script that writes to them changes: "
                f"{', '.join(linked[:MOST_NAMED])}{more}")
        path = scratch.translate(workload.path)
        inside = request.model_copy(update={
            "workload": request.workload.model_copy(update={"path": str(path)}),
            "script": request.script.model_copy(update={"argv0": str(path)})})
        return run_script(inside, interpreter, cwd=scratch.folder, timeout_s=timeout_s, say=say, stdout_to_stderr=stdout_to_stderr)
    finally:
        scratch.remove()


def probe_script(workload: WorkloadRef, *, steps_from: str | None, run_to_end: bool) -> ProbeScript | None:
    """The script's part of a request; None for a workload."""
    if workload.script is None:
        return None
    return ProbeScript(argv0=workload.script.argv0, argv=workload.script.argv, steps_from=steps_from, run_to_end=run_to_end)


def with_parameters(result: ProbeResult, workload: WorkloadRef) -> ProbeResult:
    """The result with the script's arguments as its parameters, and without a timing that is none.

    The profiler only adds time: unprofiled steps that are all slower than every profiled one were still warming up.
    """
    assert workload.script is not None and result.facts is not None
    facts = result.facts.model_copy(update={"params": script_parameters(workload.script.argv)})
    steps = result.script
    usable = steps is None or result.trace_file is None or not _still_warming(steps)
    return result.model_copy(update={"facts": facts, "timing": result.timing if usable else None})


def _still_warming(steps: ProbeScriptSteps) -> bool:
    return bool(steps.unprofiled_ns and steps.profiled_ns) and median(steps.unprofiled_ns) > max(steps.profiled_ns)


def script_steps(result: ProbeResult) -> ScriptSteps:
    """The steps, with the profiler's overhead on each where enough was timed without it."""
    steps = result.script
    assert steps is not None
    profiled_mode = result.trace_file is not None
    timer: Evidence = "events"
    source = "CUDA events" if result.environment is not None and result.environment.device == "cuda" else "perf_counter"
    free_samples = steps.unprofiled_ns if profiled_mode else steps.profiled_ns
    free, profiled = (median(values) if values else None for values in (free_samples, steps.profiled_ns if profiled_mode else ()))
    note, overhead, ratio = "", None, None
    if profiled is None:
        note = "event mode runs no profiler"
    elif free is None:
        note = "no step was timed without the profiler: raise --warmup"
    elif _still_warming(steps):
        note = "the unprofiled steps were slower than every profiled one, so still warming up: raise --warmup"
    elif profiled < free:
        note = "below the noise: the profiled steps were not slower than the unprofiled ones"
    else:
        overhead, ratio = profiled - free, profiled / free if free > 0 else None
        if len(free_samples) < FEW_SAMPLES:
            note = f"from {len(free_samples)} unprofiled step{'' if len(free_samples) == 1 else 's'} only: raise --warmup to be surer"

    def figure(value: float | None, words: str) -> Figure | None:
        return None if value is None else Figure(value=value, unit="ns", evidence=timer, source=words)

    return ScriptSteps(
        steps_from=steps.steps_from, warmup_steps=steps.warmup_steps, profiled_steps=len(steps.profiled_ns),
        stacks_steps=steps.stacks_steps, run_to_end=steps.run_to_end,
        unprofiled_step=figure(free, f"{source}, median of {len(free_samples)}"), unprofiled_samples=len(free_samples),
        profiled_step=figure(profiled, f"{source}, median of {len(steps.profiled_ns)}"),
        overhead_per_step=figure(overhead, "difference of the two medians"), overhead_ratio=ratio, overhead_note=note)


def heaviest_dtype(operators: tuple[Operator, ...]) -> str:
    """The floating dtype of the operators with most time; "" when none has one. For scripts whose optimizers nobody saw."""
    times: Counter[str] = Counter()
    for operator in operators:
        if operator.dtype.startswith(("float", "bfloat")):
            times[operator.dtype] += operator.aggregated.total_duration_ns
    return times.most_common(1)[0][0] if times else ""

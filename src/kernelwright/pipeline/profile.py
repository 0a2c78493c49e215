"""One profile, from the user's file to the finished document."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from .. import __version__
from ..capture.calibration import forget_peaks, load_peaks
from ..capture.clocks import DeviceClocks, torch_load
from ..capture.interpreter import Interpreter, find_interpreter, gpu_visible
from ..capture.lock import device_lock
from ..capture.run import run_probe
from ..model.capture import ProbePeak, ProbeRequest, ProbeResult, ProbeWorkload
from ..model.counters import NoCounters
from ..model.errors import BadInput, Interrupted, KernelwrightError, MachineLacks, NotWritable
from ..model.files import begin_profile, leave_error
from ..model.nearest import did_you_mean
from ..model.profile import Profile
from ..model.saying import Say, own_lines, silent
from ..model.trace import Trace
from ..model.workload import CompileMode, Device, WorkloadRef
from ..project.fingerprint import fingerprint
from ..project.git import commit_of
from .again import ignore, run_again_after_autotuning
from .artifacts import write_artifacts
from .assemble import Run, assemble, read_ops, with_recording
from .counters import ENVIRONMENT_FILE, TRACE_FILE, CounterCapture, CounterOptions, CounterPass, said
from .forms import hide_secrets
from .meanwhile import ANALYSIS, COUNTERS, CPU_LIMIT_S, Meanwhile, Part
from .peaks import UNKNOWN, beaten_by_stages, measured_peaks, peaks_key
from .script import EARLY_EXIT, capture_script, check_script, probe_script, with_parameters
from .source import is_file
from .stages import Stages
from .stored import params_folder, safe_name
from .uncompiled import UNCOMPILED_RESULT, with_uncompiled

SCRIPT_COUNTERS = NoCounters(
    code="script", reason="a script runs once, as it is, and counters would need a second run with all that it writes and costs",
    fix="use --mode ncu, which runs the script under ncu")

_MADE_ELSEWHERE = {"ncu": "a report made elsewhere: profile_kernel FILE.ncu-rep",
                   "nsys": "a recording made elsewhere: profile_kernel FILE.nsys-rep (or a .sqlite export, or torch.profiler's .json.gz)"}


@dataclass(frozen=True)
class ProfileOptions:
    """How to run and measure; the defaults are those of the command line."""

    device: Device = "auto"
    clocks: str = "none"
    python: str | None = None
    near: Path | None = None
    """The file whose nearest .venv is looked for; None: the workload's."""
    timeout_s: float | None = None
    warmup: int | None = None
    steps: int | None = None
    compile_mode: CompileMode = "eager"
    device_name: str | None = None
    flush_l2: bool = False
    stacks: bool = True
    seed: int = 0
    steps_from: str | None = None
    """Scripts: the range that is a step; None: optimizer steps."""
    run_to_end: bool = False
    """Scripts: let them finish after the recorded steps."""
    sandbox: bool = False
    """Scripts: run them in a scratch copy of the working folder."""
    stdout_to_stderr: bool = False
    """Scripts: show their stdout on stderr, because stdout carries our JSON."""
    counters: CounterOptions = field(default_factory=CounterOptions)
    """annotation on a GPU: what to collect in a second process, under ncu."""
    nsys_executable: str | None = None
    keep_nsys_report: bool = False
    """Mode nsys: keep the report in raw/ although it holds the environments of other processes."""
    variation: bool = False
    """See what changes from call to call and within one (ProbeRequest.variation): the optimiser's."""
    uncompiled: bool = False
    """Record a workload that is compiled already without its own torch.compile too (ProbeRequest.uncompiled): the optimiser's."""
    command: tuple[str, ...] = ()
    when_begun: Callable[[], None] = ignore
    """Called once the workload's process has started, under the machine's lock: for whoever computes beside it. Not for scripts."""
    when_measuring: Callable[[bool], None] | None = None
    """Called with True when times begin to be taken, with False when that is over. Not for scripts."""


@dataclass(frozen=True)
class ProfileRun:
    """A finished profile: the document, where its raw files are, and what goes into params.json."""

    profile: Profile
    out_dir: Path
    result: ProbeResult
    params: dict[str, Any] = field(default_factory=dict)
    trace: Trace | None = None
    """What was recorded; None in mode event."""
    uncompiled: Profile | None = None
    """Of the workload without its own torch.compile; None where that was not asked for, or is not known."""


Capture = Callable[[WorkloadRef, str, Path, Interpreter, ProfileOptions, Say, Sequence[Part]], Run]
"""(workload, mode, folder, interpreter, options, say, what to load meanwhile) -> what one capture left in folder/raw."""


def profile(
    workload: WorkloadRef, mode: str, out_dir: Path | None = None, options: ProfileOptions | None = None,
    *, say: Say = silent, meanwhile: Sequence[Part] = (), capture: Capture | None = None,
) -> ProfileRun:
    """Profile one workload in one mode. Raw files are in out_dir/raw; the caller writes the documents (report layer).

    meanwhile: what the caller will need, loaded while the workload runs. capture: instead of the mode's own.

    Raises BadInput, MachineLacks, WorkloadFailed; a failed run leaves error.json and what it had.
    """
    options, stages = options or ProfileOptions(), Stages()
    if mode == "ncu" or (mode == "nsys" and capture is None):
        raise ValueError("modes ncu and nsys have functions of their own: ncu_live.profile_ncu, nsys_live.profile_nsys")
    check_mode(mode)
    check_file(workload)
    if workload.script is not None:
        check_script(workload, compile_mode=options.compile_mode, flush_l2=options.flush_l2, warmup=options.warmup,
                     steps_from=options.steps_from)
    interpreter = find_interpreter(options.python, options.near or workload.path, options.device, say)
    source = fingerprint(workload) if workload.script is None else None
    commit = commit_of(workload.path.parent, own_files(workload))
    folder = working_folder(workload, mode, out_dir)
    capture = capture or (capture_workload if workload.script is None else capture_script_run)
    stages.end("prepare")
    try:
        run = capture(workload, mode, folder, interpreter, options, say, meanwhile)
        stages.end("capture")
        run = with_recording(run)
        document = with_missing_stages(assemble(run), workload)
        if workload.script is not None and beaten_by_stages(document):  # nothing can be calibrated in a script's process
            forget_peaks(_peaks_key(interpreter, options))
            run = replace(run, peaks=(), warnings=(UNKNOWN.format(again=""),))
            document = assemble(run)
        if document.no_counters is not None and (line := said(document.no_counters)):
            say(line)
        document, plain = with_uncompiled(document, run)
        write_artifacts(folder, run.result, document, workload.name)
    except (KernelwrightError, OSError, KeyboardInterrupt) as error:
        final = folder if out_dir is not None else move_folder(folder, workload, mode, workload.params)
        fault = fault_of(error, final)
        fault.where, fault.fix = (text.replace(str(folder), str(final)) for text in (fault.where, fault.fix))
        if fault.where and is_file(final / "raw" / fault.where):  # readers name their file alone
            fault.where = str(final / "raw" / fault.where)
        leave_error(final, fault)
        if fault is not error and isinstance(error, OSError):
            raise fault from error
        raise
    final = folder if out_dir is not None else move_folder(folder, workload, mode, document.parameters)
    stages.end("analysis")
    params = {**_params(document, run, options, interpreter, final), "source_sha256": source, "commit": commit,
              "stages_s": {**stages.spent_s, **run.spent_s},
              "analysed_at_unix_s": round(time.time(), 3)}
    return ProfileRun(document, final, run.result, params, run.recorded.trace_whole if run.recorded is not None else None,
                      plain)


def with_missing_stages(document: Profile, workload: WorkloadRef) -> Profile:
    """The same with a warning where a stage that the project file names is not in its timeline."""
    missing = [name for name in workload.stages if all(stage.name != name for stage in document.stages)]
    if not missing or document.timeline is None:
        return document
    words = f"{workload.project or 'the project file'} names stages that this profile does not have: {', '.join(missing)}"
    return document.model_copy(update={"warnings": (*document.warnings, words)})


def fault_of(error: KernelwrightError | OSError | KeyboardInterrupt, folder: Path) -> KernelwrightError:
    """What ended a run, as the error that is told."""
    if isinstance(error, KernelwrightError):
        return error
    if isinstance(error, OSError):
        return NotWritable(error, error.filename or folder)
    return Interrupted(str(folder))


def own_files(workload: WorkloadRef) -> tuple[Path, ...]:
    """The workload's file, and its version's where that has one of its own."""
    return tuple(dict.fromkeys((workload.path, *([workload.source.path] if workload.source is not None else []))))


def check_file(workload: WorkloadRef) -> None:
    """Raises BadInput where the workload's file went away."""
    if not workload.path.is_file():
        raise BadInput("no_such_workload", "no such file", where=str(workload.path),
                       fix=did_you_mean(workload.path, "give the path of a Python file", suffix=".py"))


def check_mode(mode: str) -> None:
    """Raises BadInput for a word that is no mode, MachineLacks for a mode that can't run here."""
    if mode not in _MADE_ELSEWHERE and mode not in ("event", "annotation"):
        raise BadInput("unknown_mode", f"unknown mode {mode!r}", where="--mode", fix="one of: annotation, event, ncu, nsys")
    if mode in ("event", "annotation") or gpu_visible():
        return
    raise MachineLacks(f"no_{mode}", f"{mode} mode needs an NVIDIA GPU, and none is visible", where=f"--mode {mode}",
                       fix=f"use --mode annotation or --mode event; or name {_MADE_ELSEWHERE[mode]}")


def capture_workload(
    workload: WorkloadRef, mode: str, folder: Path, interpreter: Interpreter, options: ProfileOptions, say: Say, meanwhile: Sequence[Part]
) -> Run:
    """Run a workload in mode event or annotation."""
    key = _peaks_key(interpreter, options)
    request = ProbeRequest(
        action="annotation" if mode == "annotation" else "event",
        workload=ProbeWorkload.of(workload),
        device=options.device, out_dir=str(folder / "raw"), seed=options.seed, compile_mode=options.compile_mode,
        warmup=options.warmup, steps=options.steps, flush_l2=options.flush_l2, calibrate=not load_peaks(key), stacks=options.stacks,
        variation=options.variation, uncompiled=options.uncompiled,
        measuring=str(folder / "raw" / "measuring") if options.when_measuring is not None else None,
    )
    second = CounterPass(options.counters, say) if mode == "annotation" else None
    counters: CounterCapture | NoCounters | None = None

    raw, cwd, when_measuring = folder / "raw", Path.cwd(), options.when_measuring or (lambda _is_measuring: None)
    on_gpu = options.device != "cpu" and gpu_visible()
    known = (*ANALYSIS, *(COUNTERS if on_gpu else ())) if mode == "annotation" else ()
    ready = Meanwhile((*known, *meanwhile), limit_s=None if on_gpu else CPU_LIMIT_S)

    def beside() -> None:
        options.when_begun()
        if second is not None and on_gpu:
            second.begin(request, interpreter, raw=raw, cwd=cwd, timeout_s=options.timeout_s)
        ready.start()

    for name in (TRACE_FILE, ENVIRONMENT_FILE, UNCOMPILED_RESULT):  # of an earlier run into the same folder
        (raw / name).unlink(missing_ok=True)
    with device_lock(f"profile {workload.name}", say), clocks_of_run(options, interpreter, say) as clocks, abandoning(second, ready):
        say(f"profiling {workload.name} ({mode}) with torch {interpreter.torch_version} from {interpreter.source}")
        stages = Stages()
        result = run_again_after_autotuning(
            request, lambda asked: run_probe(asked, interpreter, cwd=cwd, timeout_s=options.timeout_s, say=say,
                                             while_running=ignore if asked.again else beside,
                                             when_measuring=when_measuring), say)
        took_s = stages.end("first_process")
        again = request.model_copy(update={"action": "describe", "calibrate": True, "variation": False,
                                           "out_dir": str(raw / "calibration")})
        peaks, doubts = measured_peaks(
            result, read_ops(raw, result), key,
            lambda: run_probe(again, interpreter, cwd=cwd, timeout_s=options.timeout_s, say=say, when_measuring=when_measuring), say)
        stages.end("peaks")
        if second is not None:
            timed = clocks.reading()  # of the timings: ncu's replays, one by one between idle times, say nothing of them
            counters = second.collect(request, result, interpreter, raw=raw, cwd=cwd, timeout_s=options.timeout_s, first_s=took_s)
            stages.end("counters")
    ready.join()
    stages.end("loading")
    reading = timed if isinstance(counters, CounterCapture) else clocks.reading()
    return Run(workload=workload, mode=mode, raw=raw, result=result, peaks=peaks,
               clocks=reading, compile_mode=options.compile_mode, device_name=options.device_name, version=__version__, counters=counters,
               warnings=doubts, spent_s=stages.spent_s)


def capture_script_run(
    workload: WorkloadRef, mode: str, folder: Path, interpreter: Interpreter, options: ProfileOptions, say: Say, meanwhile: Sequence[Part]
) -> Run:
    """Run a script in mode event or annotation."""
    # No calibration inside the user's process: it would use its memory. Peaks of an earlier run are shown.
    request = ProbeRequest(
        action="annotation" if mode == "annotation" else "event", workload=ProbeWorkload(path=str(workload.path)), device=options.device,
        out_dir=str(folder / "raw"), warmup=options.warmup, steps=options.steps, stacks=options.stacks,
        script=probe_script(workload, steps_from=options.steps_from, run_to_end=options.run_to_end),
    )
    say = own_lines(say)  # the script's own lines stand among them
    leave_out = folder if ".running-" not in folder.name else Path.cwd() / "out" / "profiles"
    with device_lock(f"profile {workload.name}", say), clocks_of_run(options, interpreter, say) as clocks:
        if not (options.sandbox or options.run_to_end):
            say(EARLY_EXIT)
        say(f"profiling the script {workload.name} ({mode}) with torch {interpreter.torch_version} from {interpreter.source}")
        result = capture_script(request, workload, interpreter, folder=folder, leave_out=leave_out, sandbox=options.sandbox,
                                timeout_s=options.timeout_s, say=say, stdout_to_stderr=options.stdout_to_stderr)
    peaks = known_peaks(interpreter, options, result)
    return Run(workload=workload, mode=mode, raw=folder / "raw", result=with_parameters(result, workload), peaks=peaks,
               clocks=clocks.reading(), compile_mode="as the script has it", device_name=options.device_name, version=__version__,
               counters=SCRIPT_COUNTERS if mode == "annotation" else None)


def clocks_of_run(options: ProfileOptions, interpreter: Interpreter, say: Say) -> DeviceClocks:
    """The clocks around a run."""
    return DeviceClocks(options.clocks, device=options.device, load=torch_load(lambda: interpreter, options.device), say=say)


@contextlib.contextmanager
def abandoning(second: CounterPass | None, ready: Meanwhile) -> Iterator[None]:
    """Whatever goes wrong inside, a counter process that was started early does not stay, and nothing is being loaded any more."""
    try:
        yield
    except BaseException:
        if second is not None:
            second.abandon()
        ready.join(rest=False)
        raise


def known_peaks(interpreter: Interpreter, options: ProfileOptions, result: ProbeResult) -> tuple[ProbePeak, ...]:
    """The peaks that an earlier run measured on this device; none are measured."""
    return load_peaks(_peaks_key(interpreter, options), result.environment.device_name) if result.environment is not None else ()


def _peaks_key(interpreter: Interpreter, options: ProfileOptions) -> str:
    return peaks_key(interpreter, options.device, __version__)


def working_folder(workload: WorkloadRef, mode: str, out_dir: Path | None) -> Path:
    """out_dir, or a new folder that `move_folder` gives its name once the parameters are known. Raises NotWritable."""
    stamp = datetime.now(timezone.utc).strftime("%Y%m%d-%H%M%S-%f")
    folder = out_dir or Path.cwd() / "out" / "profiles" / mode / safe_name(workload.name) / f".running-{stamp}-{os.getpid()}"
    try:
        begin_profile(folder)
    except OSError as error:
        raise NotWritable(error, folder) from error
    return folder.resolve()


def move_folder(folder: Path, workload: WorkloadRef, mode: str, params: Mapping[str, Any]) -> Path:
    """The folder at its final place."""
    stamp = folder.name.removeprefix(".running-").rsplit("-", 1)[0]
    parent = folder.parent / params_folder(params)
    parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(exist_ok=True)  # the workload may have removed it: what went wrong is still told in it
    target = parent / stamp
    while True:
        try:
            os.rename(folder, target)
            return target
        except OSError:
            if not target.exists():
                raise
            time.sleep(0.001)
            target = parent / datetime.now(timezone.utc).strftime("%Y%m%d-%H%M%S-%f")


def _script(run: Run, options: ProfileOptions) -> dict[str, Any] | None:
    script, steps = run.workload.script, run.result.script
    if script is None or steps is None:
        return None
    return {"arguments": hide_secrets(script.argv), "steps_from": steps.steps_from, "steps_seen": steps.steps_seen,
            "warmup_steps": steps.warmup_steps, "profiled_steps": len(steps.profiled_ns), "stacks_steps": steps.stacks_steps,
            "run_to_end": steps.run_to_end, "sandbox": options.sandbox}


def _params(document: Profile, run: Run, options: ProfileOptions, interpreter: Interpreter, folder: Path) -> dict[str, Any]:
    environment = run.result.environment
    return {
        "kernel": run.workload.name, "version": document.capture_metadata.version, "mode": run.mode,
        "workload": str(run.workload.path), "parameters": document.parameters,
        "inputs": [spec.model_dump() for spec in document.inputs], "out_dir": str(folder),
        "device": environment.model_dump() if environment else None,
        "versions": {"kernelwright": __version__, "torch": interpreter.torch_version, "schema": document.schema_version},
        "interpreter": {"path": str(interpreter.path), "source": interpreter.source},
        "clocks": document.capture_metadata.clocks.model_dump(), "seed": options.seed,
        "options": {"warmup": options.warmup, "steps": options.steps, "compile_mode": options.compile_mode,
                    "flush_l2": run.result.timing.flushed_l2 if run.result.timing else False,
                    "counters": dataclasses.asdict(options.counters)},
        "script": _script(run, options), "command": hide_secrets(options.command), "phases_s": run.result.phases_s,
        "counter_phases_s": _counter_phases(run),
        **({"recording": document.recording.model_dump(mode="json")} if document.recording is not None else {}),
    }


def _counter_phases(run: Run) -> dict[str, float] | None:
    file = run.raw / "counters" / "result.json"
    if not isinstance(run.counters, CounterCapture):
        return None
    try:
        return ProbeResult.model_validate_json(file.read_bytes()).phases_s
    except (OSError, ValidationError):
        return None

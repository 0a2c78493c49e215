"""Mode ncu on a workload: one step of it under ncu with every section, for the launches that are asked for.

Without a choice the heaviest kernels are looked at: a first process records one step's timeline, and its heaviest launches are replayed.
With one (--kernel, --operator, --launch) ncu's own filters choose, and there is no first process. Nothing here is a timing of the program.
"""

from __future__ import annotations

import re
from datetime import datetime, timezone
from pathlib import Path

from .. import __version__
from ..attribute.signatures import CounterPlan, plan_counters
from ..capture.doctor import counters_closed
from ..capture.interpreter import Interpreter, find_interpreter
from ..capture.lock import device_lock
from ..capture.ncu import NcuRun as Replayed
from ..capture.ncu import run_ncu
from ..capture.ncu_errors import denied, no_tool
from ..capture.nsight import Tool, find_ncu
from ..capture.run import run_probe
from ..capture.system_view import SystemView, real_system
from ..model.capture import ProbeRequest, ProbeResult, ProbeWorkload
from ..model.counters import NoCounters
from ..model.errors import BadInput, KernelwrightError, MachineLacks, WorkloadFailed
from ..model.files import leave_error
from ..model.profile import ClockReading
from ..model.saying import Say, silent
from ..model.trace import Trace
from ..model.workload import WorkloadRef
from ..project.fingerprint import fingerprint
from ..project.git import commit_of
from ..readers.kineto import read_kineto
from .ncu import SUFFIX, NcuRun, Selection, compiled_pattern, ncu_params, read_reports
from .ncu_profile import Setting, build_profile
from .profile import ProfileOptions, check_file, check_mode, clocks_of_run, fault_of, move_folder, own_files, working_folder
from .stored import safe_name

DEFAULT_HEAVIEST = 3
TIMEOUT_S = 1800.0
SMALL_SHARE = 0.3
"""Of kernel time, for workloads whose heaviest launches stand in one range with so many others that they don't fit."""
FULL = ("--set", "full", "--import-source", "yes")
ONCE_EACH = ("--filter-mode", "per-launch-config", "--launch-count", "1")
"""One launch of each kernel configuration is replayed."""
_ODD = re.compile(r"[^\w:.\- ]")
"""What ncu's own grammar of ranges may read as something else: any character matches in its place."""


def profile_ncu(workload: WorkloadRef, out_dir: Path | None, options: ProfileOptions, selection: Selection, *,
                say: Say = silent) -> NcuRun:
    """Replay the chosen launches with all counters, and analyse the report. The caller writes the documents (report layer).

    Raises BadInput, MachineLacks (no GPU, no ncu, counters denied: with the fix), WorkloadFailed; a failed run leaves error.json.
    """
    check_mode("ncu")
    check_file(workload)
    if workload.script is not None:
        raise BadInput("script_not_taken", "mode ncu runs workloads, and the file has no entry point, so it is a script",
                       where=str(workload.path), fix="capture it by hand, and name the report: ncu --set full --import-source yes "
                       "--launch-count 20 -o FILE python SCRIPT.py, then profile_kernel FILE.ncu-rep")
    if selection.kernel is not None:
        compiled_pattern(selection.kernel)
    view = real_system()
    tool = _tool(view, options)
    interpreter = find_interpreter(options.python, workload.path, options.device, say)
    folder = working_folder(workload, "ncu", out_dir)
    try:
        done = _run(workload, folder, interpreter, options, selection, tool, view, say)
    except (KernelwrightError, OSError, KeyboardInterrupt) as error:
        final = folder if out_dir is not None else move_folder(folder, workload, "ncu", workload.params)
        fault = fault_of(error, final)
        fault.where, fault.fix = (text.replace(str(folder), str(final)) for text in (fault.where, fault.fix))
        leave_error(final, fault)
        if fault is not error and isinstance(error, OSError):
            raise fault from error
        raise
    if out_dir is not None:
        return done
    final = move_folder(folder, workload, "ncu", done.profile.parameters)
    return NcuRun(done.profile, done.reports, final, {**done.params, "out_dir": str(final)})


def _tool(view: SystemView, options: ProfileOptions) -> Tool:
    tool = find_ncu(view, options.counters.executable)
    if not tool.works:
        raise lacks(no_tool(tool))
    closed = "" if options.counters.sudo else counters_closed(view)
    if closed:
        raise lacks(denied(view, f"the driver keeps counters {closed}"))
    return tool


def lacks(reason: NoCounters) -> KernelwrightError:
    """Why there are no counters, as the error that a mode ends with which has nothing else to give."""
    kind = WorkloadFailed if reason.code == "failed_under_ncu" else MachineLacks
    advice = f"; {reason.advice}" if reason.advice else ""
    return kind(reason.code, reason.reason, where="--mode ncu", fix=f"{reason.fix}{advice}".strip("; ") or "see doctor")


def _run(workload: WorkloadRef, folder: Path, interpreter: Interpreter, options: ProfileOptions, selection: Selection, tool: Tool,
         view: SystemView, say: Say) -> NcuRun:
    request = ProbeRequest(
        action="counters", workload=ProbeWorkload.of(workload),
        device=options.device, out_dir=str(folder / "raw"), seed=options.seed, compile_mode=options.compile_mode, warmup=options.warmup,
        stacks=False)
    with device_lock(f"profile {workload.name}", say), clocks_of_run(options, interpreter, say) as clocks:
        say(f"profiling {workload.name} (ncu) with torch {interpreter.torch_version} from {interpreter.source}")
        plan = None if _chosen(selection) else _plan(request, folder, interpreter, options, selection, say)
        extra = [*FULL, "--source-folders", str(workload.path.parent), *filters(selection, plan)]
        say(f"ncu: replaying {f'{plan.launches} launches' if plan else 'the chosen launches'} with all sections, some seconds each")
        ran = run_ncu(request, interpreter, tool=tool, metrics=(), op_ids=plan.op_ids if plan else None, extra=extra,
                      sudo=options.counters.sudo, report=folder / "raw" / f"{safe_name(workload.name)}{SUFFIX}", cwd=Path.cwd(),
                      timeout_s=options.timeout_s or TIMEOUT_S, say=say, view=view)
    if ran.report is None:
        raise lacks(_reason(ran, selection))
    result = ProbeResult.model_validate_json((folder / "raw" / "result.json").read_bytes())
    return _analysed(workload, folder, options, selection, interpreter, result, ran, ran.report, clocks.reading())


def _reason(ran: Replayed, selection: Selection) -> NoCounters:
    reason = ran.denied or NoCounters(code="ncu_failed", reason="ncu left no report", fix=f"look into {ran.log}")
    if reason.code == "no_kernels_replayed" and _chosen(selection):
        return NoCounters(code=reason.code, reason="no launch of one call of the workload is the one asked for",
                          fix="leave --kernel, --launch and --operator out: the heaviest kernels are then named in the report")
    return reason


def _analysed(workload: WorkloadRef, folder: Path, options: ProfileOptions, selection: Selection, interpreter: Interpreter,
              result: ProbeResult, ran: Replayed, report: Path, clocks: ClockReading) -> NcuRun:
    facts, environment = result.facts, result.environment
    limit = Selection(heaviest=selection.heaviest or (None if _chosen(selection) else DEFAULT_HEAVIEST))
    reports = read_reports([report], limit)
    setting = Setting(
        name=workload.name, version=facts.version if facts else workload.version, kernelwright_version=__version__,
        torch_version=environment.torch_version if environment else interpreter.torch_version,
        python_version=environment.python_version if environment else "", compile_mode=options.compile_mode,
        device_name=options.device_name,
        captured_utc=datetime.now(timezone.utc).isoformat(timespec="seconds"), dtype=facts.dtype if facts else "n/a",
        training=facts.training if facts else False, parameters=facts.params if facts else {}, inputs=facts.inputs if facts else (),
        clocks=clocks, warnings=(*result.warnings, *clocks.warnings))
    document = build_profile(reports, setting)
    params = ncu_params(document, setting, reports, [report.name], limit, workload.path, folder, options.command)
    asked = {"kernel": selection.kernel, "launch": selection.launch, "operator": selection.operator, "heaviest": selection.heaviest}
    params.update({
        "source_sha256": fingerprint(workload.model_copy(update={"version": setting.version})),
        "commit": commit_of(workload.path.parent, own_files(workload)),
        "parameters": document.parameters, "inputs": [spec.model_dump() for spec in document.inputs],
        "device": environment.model_dump() if environment else params["device"],
        "interpreter": {"path": str(interpreter.path), "source": interpreter.source}, "seed": options.seed, "asked": asked,
        "ncu": {"passes": ran.passes, "launches": ran.launches, "seconds": round(ran.seconds, 3)}, "phases_s": result.phases_s,
        "versions": {**params["versions"], "torch": interpreter.torch_version}})
    return NcuRun(document, reports, folder, params)


def _chosen(selection: Selection) -> bool:
    """Whether ncu's own filters choose; else the heaviest kernels of a first recording."""
    return (selection.kernel, selection.launch, selection.operator) != (None, None, None)


def _plan(request: ProbeRequest, folder: Path, interpreter: Interpreter, options: ProfileOptions, selection: Selection,
          say: Say) -> CounterPlan:
    """The heaviest launches of one recorded step. Raises WorkloadFailed when it launched nothing."""
    first = folder / "raw" / "timeline"
    first.mkdir(parents=True, exist_ok=True)
    asked = request.model_copy(update={"action": "annotation", "out_dir": str(first), "steps": 1, "calibrate": False})
    result = run_probe(asked, interpreter, cwd=Path.cwd(), timeout_s=options.timeout_s, say=say)
    if result.environment is None or result.environment.device != "cuda" or result.trace_file is None:
        raise MachineLacks("no_ncu", "ncu mode needs an NVIDIA GPU, and the workload ran on the CPU", where="--mode ncu",
                           fix="use --device cuda, or --mode annotation")
    return heaviest_plan(read_kineto(first / result.trace_file), selection.heaviest or DEFAULT_HEAVIEST, str(request.workload.path))


def heaviest_plan(trace: Trace, kernels: int, where: str) -> CounterPlan:
    """One launch of each of the `kernels` heaviest signatures; where they don't fit in so many launches, those of a share of the time."""
    plan = plan_counters(trace, budget_s=float(kernels), per_launch_s=1.0)
    plan = plan if plan.op_ids else plan_counters(trace, share=SMALL_SHARE)
    if not plan.op_ids:
        raise WorkloadFailed("nothing_to_replay", "one call launches no kernel that ncu could replay", where=where,
                             fix="look at --mode annotation; copies, memsets and NCCL kernels are never replayed")
    return plan


def filters(selection: Selection, plan: CounterPlan | None) -> list[str]:
    """ncu's own filters. One launch of each configuration, unless one launch is named."""
    if plan is not None:
        count = plan.launch_count
        return [] if count is None else ["--filter-mode", "per-launch-config", "--launch-count", str(count)]
    words: list[str] = []
    if selection.kernel is not None:
        words += ["--kernel-name", f"regex:{selection.kernel}"]
    if selection.operator is not None:
        words += ["--nvtx-include", f"regex:.*{_ODD.sub('.', selection.operator)}.*/"]
    if selection.launch is not None:
        return [*words, "--launch-skip", str(selection.launch), "--launch-count", "1"]
    return [*words, *ONCE_EACH]

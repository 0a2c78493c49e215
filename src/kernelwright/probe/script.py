"""Runs a user's script as `__main__`, unmodified, and records the steps that script_window chooses.

Up to the last recorded step the script runs as under `python SCRIPT ARGS`; then it is ended as sys.exit(0) at that place
would end it, or left to run to its end. result.json is there before the script is ended.
"""

from __future__ import annotations

import atexit
import builtins
import contextlib
import os
import sys
import threading
import time
from importlib.machinery import SourceFileLoader
from types import CodeType, ModuleType
from typing import Any

from .failures import EXIT_INTERRUPTED, ProbeFailure, bad_input, describe, workload_failed
from .machine import busy_machine
from .results import write_json
from .script_steps import OptimizerSteps, RangeSteps, watch_torch
from .script_window import MOST_TRIES, Plan, Step, StopScript, Window

RESULT_FILE = "result.json"
WARMUP, STEPS = 2, 5
EXIT_GRACE_S = 120.0
"""How long a script that was told to end may take (a final save, threads that wait) before its process is ended."""
ERROR_GRACE_S = 10.0
"""The same for threads that outlive a script that failed."""
ENTRY_POINTS = "if this file was meant as a workload: define get_model_and_input(), or Model and get_inputs(), or VERSIONS and get_inputs()"


def main(request: dict[str, Any]) -> int:
    """Carry out a request for a script; returns the exit code of the process."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # its start and stop messages would stand among the script's own
    run = ScriptRun(request)
    run.carry_out()
    error = run.result["error"]
    others = [thread for thread in threading.enumerate() if not thread.daemon and thread is not threading.main_thread()]
    if error and others:
        threading.Thread(target=run.leave_later, args=(ERROR_GRACE_S,), name="kernelwright", daemon=True).start()
    return int(error["exit_code"]) if error else 0


class ScriptRun:
    """One script being run."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.request = request
        self.script = request["script"]
        self.path = os.path.abspath(request["workload"]["path"])
        self.process = os.getpid()
        mode = "annotation" if request["action"] == "annotation" else "event"
        self.plan = Plan(mode=mode, device=request["device"], out_dir=request["out_dir"], folder=os.path.dirname(self.path),
                         stacks=bool(request.get("stacks", True)),
                         warmup=_or(request.get("warmup"), WARMUP), steps=_or(request.get("steps"), STEPS),
                         run_to_end=bool(self.script.get("run_to_end")))
        self.window = Window(self.plan, finish=self._finish, end_by_force=self._end_by_force, optimizers=lambda: self.steps.optimizers
                             if isinstance(self.steps, OptimizerSteps) else [])
        name = self.script.get("steps_from")
        self.steps: OptimizerSteps | RangeSteps = RangeSteps(self.window, name) if name else OptimizerSteps(self.window)
        self.busy = busy_machine()
        self.started = time.perf_counter()
        self.result: dict[str, Any] = {
            "status": "ok", "error": None, "environment": None, "facts": None, "timing": None, "work": None, "peaks": [],
            "trace_file": None, "trace_steps": 0, "stacks_file": None,
            "lines_file": None, "ops_file": None, "compiled_file": None, "warnings": [], "phases_s": {}, "script": None,
        }

    def carry_out(self) -> None:
        """Run the script to its end or ours; the result is in result.json by then."""
        try:
            code = self._code()
            watch_torch(self.steps.install)
            self._execute(code)
        except StopScript:
            pass
        except BaseException as error:
            if os.getpid() != self.process:
                raise
            self._raised(error)
        else:
            if os.getpid() != self.process:  # a forked child of the script's came back to here
                return
            self._ended()
        if self.window.failure is not None:
            self._fail(self.window.failure)
        elif not self.result["error"]:
            self._finish()
        self._write()

    def _code(self) -> CodeType:
        with open(self.path, "rb") as file:
            return compile(file.read(), self.path, "exec", dont_inherit=True)

    def _execute(self, code: CodeType) -> None:
        """As `python SCRIPT ARGS` does: own `__main__`, argv, and the script's folder first on sys.path."""
        module = ModuleType("__main__")
        module.__dict__.update(__file__=self.path, __builtins__=builtins, __cached__=None, __annotations__={},
                               __loader__=SourceFileLoader("__main__", self.path))
        sys.modules["__main__"] = module
        sys.argv[:] = [self.script["argv0"], *self.script["argv"]]
        if not getattr(sys.flags, "safe_path", False):
            sys.path.insert(0, os.path.dirname(os.path.realpath(self.path)))
        exec(code, module.__dict__)

    def _ended(self) -> None:
        """The script came to its own end."""
        self.window.abandon()
        if not self.window.complete and self.window.failure is None:
            self._fail(self._too_few())

    def _raised(self, error: BaseException) -> None:
        window, recorded = self.window, self.window.phase == "bare"
        window.abandon()
        if isinstance(error, KeyboardInterrupt):
            self._fail(describe(error, self.path))
            return
        if isinstance(error, SystemExit) and error.code in (None, 0):
            self._ended()
            return
        _show(error, self.path)
        if window.tries:  # while it was ended: an unprofiled run that stops here would raise the same
            window.warnings.append(f"the script raised {type(error).__name__} while it was being ended; its own output says more")
            return
        if recorded:
            window.warnings.append(f"the script raised {type(error).__name__} after the recorded steps; its own output says more")
            return
        if isinstance(error, SystemExit):
            self._fail(workload_failed("script_exited", f"the script ended itself with exit status {error.code!r} after "
                                       f"{self._counted()}", where=self.path, fix="run it by itself; its arguments go after --"))
            return
        failure = describe(error, self.path)
        if failure.code in ("workload_raised", "out_of_memory"):
            failure.message += f" (after {self._counted()})"
        self._fail(failure)

    def _fail(self, failure: ProbeFailure) -> None:
        self.result.update(status="error", error=failure.as_dict())

    def _counted(self) -> str:
        what = f"range{_s(self.window.count)} {self.steps.name!r}" if isinstance(self.steps, RangeSteps) \
            else f"optimizer step{_s(self.window.count)}"
        return f"{self.window.count} {what}"

    def _too_few(self) -> ProbeFailure:
        plan, seen = self.plan, self.window.count
        if "torch" not in sys.modules:
            return bad_input("no_torch_work", "the script ended and never imported torch, so there is nothing to profile", where=self.path,
                             fix=f"name a script that trains; {ENTRY_POINTS} (the file has no such entry point)")
        needed = f"{plan.warmup} warm-up and {plan.steps} profiled steps need {plan.warmup + plan.steps}"
        if seen:
            fix = (f"let it run longer, or ask for less: --warmup {min(plan.warmup, max(1, seen - 1))} "
                   f"--steps {max(1, min(plan.steps, seen - plan.warmup))}")
            return bad_input("too_few_steps", f"the script ended after {self._counted()}; {needed}", where=self.path, fix=fix)
        if isinstance(self.steps, RangeSteps):
            return bad_input("no_steps_seen", f"the script ended, and no range {self.steps.name!r} was seen in its process; {needed}",
                             where=self.path,
                             fix="--steps-from takes the exact name of a record_function or torch.cuda.nvtx push/pop range")
        return bad_input("no_steps_seen", f"the script ended and 0 optimizer steps were seen in its process{self._uncounted()}; {needed}",
                         where=self.path,
                         fix=f"mark a step with torch.profiler.record_function and name it with --steps-from RANGE; {ENTRY_POINTS} "
                             "(the file has no such entry point)")

    def _uncounted(self) -> str:
        assert isinstance(self.steps, OptimizerSteps)
        if self.steps.captured:
            return " (they are inside a CUDA graph, whose replays can't be counted)"
        if self.steps.calls:
            return f" ({self.steps.calls} calls before every optimizer had stepped)"
        return ""

    def _finish(self) -> None:
        """Compose and write the result of a complete recording; again at the script's end, which may add to it."""
        window, steps = self.window, self.steps
        from . import environment
        from .script_recording import parameters_of
        from .timers import synchronize

        synchronize(window.device)
        if self.result["environment"] is None:
            environment.check_torch()
            self.result["environment"] = environment.describe(window.device)
            self.result["facts"] = self._facts(parameters_of(window.optimizers()))
            self._collect_compiled()
            if isinstance(steps, OptimizerSteps) and steps.successions:
                window.warnings.append("the optimizer that ended the steps fell silent, and another one ends them since (a second stage?): "
                                       "a step at that border may hold several")
        unprofiled, profiled, later = (_durations(part) for part in (window.unprofiled, window.profiled, window.later))
        free = profiled if self.plan.mode == "event" else unprofiled + later
        warnings = [*([self.busy] if self.busy and window.device == "cpu" else ()), *window.warnings]
        if isinstance(steps, OptimizerSteps) and steps.skipped:
            warnings.append(f"GradScaler skipped the optimizer in {steps.skipped} step(s); they count as steps")
        self.result.update(
            timing=self._timing(free, window.device) if free else None,
            trace_file=window.trace_file, trace_steps=len(profiled) if window.trace_file else 0,
            stacks_file=window.stacks_file, lines_file=window.lines_file,
            warnings=warnings, phases_s={"script": time.perf_counter() - self.started}, script={
                "steps_from": steps.name if isinstance(steps, RangeSteps) else None, "steps_seen": window.count,
                "warmup_steps": self.plan.warmup, "unprofiled_ns": unprofiled + later, "profiled_ns": profiled,
                "stacks_steps": 1 if window.stacks_file else 0, "run_to_end": self.plan.run_to_end, "tries": window.tries})
        if window.phase != "stop" and not self.plan.run_to_end:
            threading.Thread(target=self.leave_later, args=(EXIT_GRACE_S,), name="kernelwright", daemon=True).start()
        self._write()

    def _collect_compiled(self) -> None:
        """What Triton and Inductor compiled so far; it costs the run nothing but itself."""
        from . import compiled

        try:
            self.result["compiled_file"] = compiled.collect(self.request["out_dir"], [], self.window.warnings.append)
        except Exception as error:  # noqa: BLE001 - the outermost edge of an optional part that reads foreign objects
            self.window.warnings.append(f"collecting compiled code failed: {describe(error, self.path).message}")

    def _timing(self, samples: list[float], device: str) -> dict[str, Any]:
        import torch

        return {"samples_ns": samples, "host_ns": [], "timer": "cuda_events" if device == "cuda" else "perf_counter", "calls_per_sample": 1,
                "warmup_calls": self.plan.warmup, "warmup_s": 0.0, "flushed_l2": False,
                "peak_memory_bytes": torch.cuda.max_memory_allocated() if device == "cuda" else None}

    def _facts(self, weights: list[Any]) -> dict[str, Any]:
        from .facts import is_compiled, main_dtype

        return {"form": "script", "version": None, "versions": [], "params": {}, "inputs": [], "outputs": [],
                "training": bool(weights), "dtype": main_dtype(weights), "parameter_count": sum(weight.numel() for weight in weights),
                "parameter_bytes": sum(weight.numel() * weight.element_size() for weight in weights),
                "already_compiled": is_compiled(None)}

    def _write(self) -> None:
        write_json(os.path.join(self.request["out_dir"], RESULT_FILE), self.result)

    def leave_later(self, grace_s: float) -> None:
        """End the process when it is still there after grace_s."""
        time.sleep(grace_s)
        self._leave(f"the script had not ended {grace_s:g} s after it should have: its process was ended")

    def _end_by_force(self) -> None:
        """For scripts that catch SystemExit and go on: exit functions run, `finally` blocks further out do not."""
        self._leave(f"the script went on after {MOST_TRIES} calls to end: its process was ended, after its exit functions", run_atexit=True)

    def _leave(self, warning: str, *, run_atexit: bool = False) -> None:
        code = EXIT_INTERRUPTED
        try:
            self.result["warnings"].append(warning)
            if self.window.failure is not None:
                self._fail(self.window.failure)
            code = int(self.result["error"]["exit_code"]) if self.result["error"] else 0
            self._write()
            if run_atexit:
                atexit._run_exitfuncs()
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code)


def _durations(steps: list[Step]) -> list[float]:
    return [began.until(ended) for began, ended in steps]


def _show(error: BaseException, path: str) -> None:
    """What Python itself prints for an exception that leaves a script; our own frames are left out."""
    if isinstance(error, SystemExit):
        if error.code is not None and not isinstance(error.code, int):
            sys.stderr.write(f"{error.code}\n")
        return
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != path:
        trace = trace.tb_next
    error.__traceback__ = trace or error.__traceback__
    with contextlib.suppress(Exception):  # the script may have set a hook of its own
        sys.excepthook(type(error), error, error.__traceback__)


def _or(value: int | None, default: int) -> int:
    return default if value is None else int(value)


def _s(count: int) -> str:
    return "" if count == 1 else "s"


__all__ = ["ScriptRun", "main"]

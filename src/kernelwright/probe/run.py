"""The `run` verb of the probe: REQUEST.json -> result.json and the recordings beside it (see model/capture.py for both).

This is the probe's outermost edge: whatever goes wrong becomes result.json with status "error".
"""

from __future__ import annotations

import atexit
import ctypes
import faulthandler
import gc
import io
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from .failures import EXIT_INTERRUPTED, ProbeFailure, bad_input, describe, machine_lacks
from .results import write_json

RESULT_FILE = "result.json"
OPS_FILE = "ops.json"
ENVIRONMENT_FILE = "environment.json"
"""annotation: what result.json says of the device, there before the recordings are."""
WAIT_POLL_S = 0.01
UNDER_A_PROFILER = ("counters", "nsys")
"""Actions whose process ends as any other: ncu and nsys have work of their own there."""


def main(argv: list[str]) -> int:
    """argv: [request file]. Returns the exit code, which result.json holds as well."""
    try:
        request = _read_request(argv[0])
    except (OSError, ValueError, KeyError) as error:
        sys.stderr.write(f"kernelwright probe: bad request {argv[0]}: {error}\n")
        return 2
    if request.get("script"):
        from . import script

        return script.main(request)
    faulthandler.enable()
    sys.argv = [request["workload"]["path"]]
    result = carry_out(request)
    code = int(result["error"]["exit_code"]) if result["error"] else 0
    _leave(code, at_once=request["action"] not in UNDER_A_PROFILER)
    return code


def carry_out(request: dict[str, Any]) -> dict[str, Any]:
    """Carry out a request; returns the result, which is in out_dir/result.json by then. Raises OSError when it can't be written."""
    session = Session(request)
    try:
        session.run()
    except BaseException as error:  # noqa: BLE001 - the outermost edge: a failing workload must still leave a result
        session.result.update(status="error", error=describe(error, request["workload"]["path"]).as_dict())
    write_json(os.path.join(request["out_dir"], RESULT_FILE), session.result)
    return session.result


def _read_request(path: str) -> dict[str, Any]:
    with open(path, encoding="utf-8") as file:
        request = json.load(file)
    if not isinstance(request, dict):
        raise ValueError("not a JSON object")
    for name in ("action", "workload", "device", "out_dir"):
        if name not in request:
            raise ValueError(f"{name} is missing")
    if not os.path.isdir(request["out_dir"]):
        raise ValueError(f"no such folder: {request['out_dir']}")
    return request


def _leave(code: int, *, at_once: bool) -> None:
    """End the process, with at_once without taking torch down: the result is written, and that costs 0.4 s. What the workload registered
    with atexit runs as ever, unless the user interrupted or the workload's threads would keep the process alive; files that it left open
    get what it wrote."""
    others = [thread for thread in threading.enumerate() if not thread.daemon and thread is not threading.main_thread()]
    hopeless = code == EXIT_INTERRUPTED or bool(others)
    if not hopeless and not at_once:
        return
    if not hopeless:
        run_registered = getattr(atexit, "_run_exitfuncs", None)
        if run_registered is None:  # not a documented name
            return
        run_registered()
        _flush_files()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):  # the workload may have closed or replaced it
            stream.flush()
    with suppress(OSError, TypeError, AttributeError):  # what C code printed waits in the C library's buffer; Windows has no CDLL(None)
        ctypes.CDLL(None).fflush(None)
    os._exit(code)


def _flush_files() -> None:
    """What the interpreter's end does for files that nobody closed: text first, which goes into buffers of bytes."""
    kinds = _and_derived(io.TextIOWrapper) | {io.BufferedWriter, io.BufferedRandom}
    left = [file for file in gc.get_objects() if type(file) in kinds]
    for file in sorted(left, key=lambda one: not isinstance(one, io.TextIOWrapper)):
        with suppress(Exception):  # as the interpreter's own end does
            if not file.closed:
                file.flush()


def _and_derived(kind: type[io.TextIOWrapper]) -> set[type[io.IOBase]]:
    found: set[type[io.IOBase]] = {kind}
    for derived in type.__subclasses__(kind):
        found |= _and_derived(derived)
    return found


class Session:
    """One request being carried out; `result` is what goes into result.json, whatever happens."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.request = request
        self.choices: Any = None
        self.busy: str | None = None
        self.result: dict[str, Any] = {
            "status": "ok", "error": None, "environment": None, "facts": None, "timing": None, "work": None, "peaks": [],
            "trace_file": None, "trace_steps": 0, "stacks_file": None, "lines_file": None, "ops_file": None, "compiled_file": None,
            "warnings": [], "phases_s": {},
        }

    def run(self) -> None:
        """All phases of the request. Exceptions pass through; the result then holds what was there before."""
        with self.phase("import_torch"):
            _import_torch()
        if self.request.get("wait_for"):
            with self.phase("wait"):
                _wait_for(self.request["wait_for"])
        from . import autotuned, compiled_inductor, environment
        from .machine import busy_machine

        environment.check_torch()
        self.busy = busy_machine()
        again = bool(self.request.get("again"))
        with autotuned.journal(self.request["out_dir"], again=again, warn=self.warn) as kept, \
                compiled_inductor.listening(self.warn) as self.choices:
            self.choices.journal = kept
            self._run()

    def _run(self) -> None:
        from . import environment, facts, loaders, timers  # noqa: F401 - the clock, before the workload can replace it

        request, source = self.request, self.request["workload"]
        with self.phase("load"):
            workload = loaders.load_named(source, request["device"], int(request.get("seed", 0)))
            call = _compiled_caller(workload, request.get("compile_mode", "eager"), self.warn)
        with self.phase("warmup"):
            self.result["facts"] = facts.describe(workload, call())
        self.result["environment"] = environment.describe(workload.device)
        if request["action"] == "counters":
            self._counters(workload, call)
        elif request["action"] != "describe":
            self._measure(workload, call)
        if request.get("variation"):  # last: it makes inputs, and for some workloads models, anew
            with self.phase("variation"), self.optional("looking for changing shapes and loops"):
                from . import variation

                self.result["facts"].update(variation.describe(workload, int(request.get("seed", 0))))
        if request.get("uncompiled") and request["action"] == "annotation":
            from . import without_compile

            with self.measuring(), self.phase("uncompiled"), self.optional(without_compile.WHAT):
                without_compile.record(self, workload)
        if request.get("calibrate"):
            with self.measuring(), self.phase("calibrate"), self.optional("the calibration"):
                from . import calibrate

                self.result["peaks"], warnings = calibrate.peaks(workload.device)
                self.warn(*warnings)

    def _counters(self, workload: Any, call: Callable[[], Any]) -> None:
        from . import counters

        with self.phase("warmup"):
            counters.warm_up(call, workload.device, self.request.get("warmup"))
        with self.phase("profile"):
            counters.record_step(call, workload.device)

    def _measure(self, workload: Any, call: Callable[[], Any]) -> None:
        with self.measuring():
            self.timed(workload, call)
        # Before the count, which runs the workload in ways that may compile it anew.
        with self.phase("compiled"), self.optional("collecting compiled code"):
            from . import compiled

            self.result["compiled_file"] = compiled.collect(self.request["out_dir"], self.choices.found, self.warn)
        with self.phase("count"), self.optional("counting FLOPs and bytes"):
            self.count(workload)

    def timed(self, workload: Any, call: Callable[[], Any]) -> None:
        """Warm-up, timing and, where the action asks for it, the recordings of the profiler."""
        from . import event, timers

        request, device = self.request, workload.device
        event_mode = request["action"] == "event"
        if self.busy and device == "cpu":
            self.warn(self.busy)
        with self.phase("warmup"):
            warmup = timers.warm_up(call, device, request.get("warmup"))
        with self.phase("time"):
            samples = request.get("steps") if event_mode else None
            self.result["timing"], warnings = event.timing(call, device, warmup, samples=samples, flush_l2=bool(request.get("flush_l2")))
            self.warn(*warnings)
        if not event_mode:
            with self.phase("profile"):
                self._profile(workload, call, warmup.call_s)

    def _profile(self, workload: Any, call: Callable[[], Any], call_s: float) -> None:
        from . import annotation, facts

        request, out_dir = self.request, self.request["out_dir"]
        steps = annotation.step_count(request.get("steps"), call_s)
        if request["action"] == "nsys":
            self._under_nsys(workload, call, steps)
            return
        write_json(os.path.join(out_dir, ENVIRONMENT_FILE), self.result["environment"])
        self.warn(*annotation.record_timeline(call, workload.device, out_dir, steps, call_s))
        self.result.update(trace_file=annotation.TRACE_FILE, trace_steps=steps)
        if request.get("stacks", True):
            eager = request.get("compile_mode", "eager") == "eager" and not facts.is_compiled(workload.model)
            with self.optional("the recording with stacks"):
                model, folder = workload.model if eager else None, os.path.dirname(os.path.abspath(request["workload"]["path"]))
                self.result["lines_file"], warnings = annotation.record_stacks(call, model, workload.device, out_dir, folder)
                self.result["stacks_file"] = annotation.STACKS_FILE
                self.warn(*warnings)

    def _under_nsys(self, workload: Any, call: Callable[[], Any], steps: int) -> None:
        from . import facts, nsys

        request = self.request
        eager = request.get("compile_mode", "eager") == "eager" and not facts.is_compiled(workload.model)
        self.result["lines_file"], warnings = nsys.record_steps(
            call, workload.model if eager else None, workload.device, request["out_dir"],
            os.path.dirname(os.path.abspath(request["workload"]["path"])), steps, bool(request.get("stacks", True)))
        self.result["trace_steps"] = steps
        self.warn(*warnings)

    def count(self, workload: Any) -> None:
        """FLOPs and bytes of a call, and its operators one by one."""
        from . import count

        self.result["work"] = {"flops": None, "flops_source": "counting failed", "min_bytes": None, "bytes_source": "counting failed"}
        self.result["work"], records = count.count(workload)
        if records is None or self.request.get("compile_mode", "eager") != "eager":
            if self.result["trace_file"]:
                self.warn("operators were not recorded one by one: the call is compiled")
            return
        write_json(os.path.join(self.request["out_dir"], OPS_FILE), records)
        self.result["ops_file"] = OPS_FILE

    def warn(self, *messages: str) -> None:
        """Add warnings to the result."""
        self.result["warnings"].extend(messages)

    @contextmanager
    def measuring(self) -> Iterator[None]:
        """The file that the request names is there inside it."""
        file = self.request.get("measuring")
        with suppress(OSError):
            if file:
                open(file, "wb").close()
        try:
            yield
        finally:
            with suppress(OSError):
                if file:
                    os.unlink(file)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Adds the time spent inside to phases_s."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.result["phases_s"][name] = self.result["phases_s"].get(name, 0.0) + time.perf_counter() - start

    @contextmanager
    def optional(self, what: str) -> Iterator[None]:
        """A part whose failure costs its own figures, not the run: becomes a warning."""
        try:
            yield
        except Exception as error:  # the outermost edge of optional parts: they run the user's code in unusual ways
            failure = describe(error, self.request["workload"]["path"])
            if isinstance(error, ProbeFailure):
                raise
            self.warn(f"{what} failed: {failure.message} ({failure.where})")


def _wait_for(path: str) -> None:
    """Until another process of the same profile has done with the device; who started this one ends it if that never comes."""
    while not os.path.exists(path):
        time.sleep(WAIT_POLL_S)


def _import_torch() -> None:
    """Raises no_torch or broken_torch."""
    fix = "name an interpreter that has torch with --python, or install torch there"
    try:
        import torch  # noqa: F401
    except ModuleNotFoundError as error:
        raise machine_lacks("no_torch", f"{sys.executable} has no {error.name}", where="--python", fix=fix) from error
    except (ImportError, OSError) as error:
        raise machine_lacks("broken_torch", f"torch of {sys.executable} cannot be imported: {error}", where="--python", fix=fix) from error


def _compiled_caller(workload: Any, mode: str, warn: Callable[[str], None]) -> Callable[[], Any]:
    """One call of the workload under the asked compile mode."""
    import torch

    if mode == "eager":
        call: Callable[[], Any] = workload.caller()
        return call
    if mode not in ("inductor", "cudagraphs"):
        raise bad_input("bad_compile_mode", f"unknown compile mode {mode!r}", where="--compile-mode", fix="eager, inductor or cudagraphs")
    if mode == "cudagraphs" and workload.device == "cpu":
        warn("CUDA graphs do not exist on the CPU: the workload ran under inductor alone")
    compiled = torch.compile(workload.model, mode="reduce-overhead" if mode == "cudagraphs" else None)
    compiled_call: Callable[[], Any] = workload.caller(compiled)
    if mode == "inductor" or workload.device == "cpu":
        return compiled_call

    def replay() -> Any:
        # Without it every call in grad mode waits for the backward of the last and records anew (H200: 3.0 ms a call).
        torch.compiler.cudagraph_mark_step_begin()
        return compiled_call()

    return replay

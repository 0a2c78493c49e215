"""compute-sanitizer on request: one call of a right candidate under each tool asked for, in a process of its own.

Lines of its log as in NVIDIA's manual (docs.nvidia.com/compute-sanitizer), of 2021 to 2025: a heading, then "at KERNEL+0x70 in FILE:LINE"
(before 2024 "at 0x70 in FILE:LINE:KERNEL"), and a summary line at the end.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from ..capture.gpus import cuda_hidden
from ..capture.nsight import Tool, find_sanitizer
from ..capture.process import PROBE_START, myself, probe_environment, start, terminate
from ..capture.system_view import SystemView, real_system
from ..model.files import write_json_atomic
from ..model.verdict import Audit
from ..model.workload import Device
from .options import SanitizerTool
from .untrusted import open_regular

ERRORS_FOUND = 86
"""The tool's exit status when it found any: the program's own are others, and a log can be written over."""
MAX_LOG_BYTES = 16 * 2**20
PRINTED = 100
"""Errors that the log spells out."""
POLL_S = 0.05
LIBRARIES = re.compile(r"(?:void\s+)?(?:at::|c10::|cub::|thrust::|cutlass|cublas|cudnn|nccl|sm\d\d_|"
                       r"(?:ampere|volta|turing|hopper|maxwell)_)")
"""Kernels of torch's libraries. In tools other than memcheck what these do by themselves is not the candidate's; an access out of bounds is
its caller's."""
_SUMMARY = re.compile(r"(?:ERROR|RACECHECK|INITCHECK|SYNCCHECK) SUMMARY: (\d+) (?:errors?|hazards? displayed \((\d+) errors?)")
_AT = re.compile(r"at (?:0x[0-9a-fA-F]+ in (?:(?P<old_place>.+?:\d+):)?(?P<old>.+)|(?P<new>.+?)(?:(?:\+|:)0x[0-9a-fA-F]+)?"
                 r"(?: in (?P<place>\S.*:\d+))?)$")
_RACE = re.compile(r"Error: Race reported between \w+ access (?P<at>at .+?)(?: and \w+ access at .+)?(?: \[\d+ hazards?\])?$")
_FRAME = re.compile(r"Device Frame: ?(?P<frame>.+)$")
_NOT_HEADINGS = ("COMPUTE-SANITIZER", "Target application returned", "Warning:", "LEAK SUMMARY", "Program hit")
_BROKEN = re.compile(r"(?:Internal Sanitizer Error|Error: |Device not supported|.*not supported on|"
                     r".*terminated before first instrumented).*", re.IGNORECASE)


class Called(BaseModel):
    """What the probe leaves."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    ok: bool
    error: dict[str, Any] = {}


@dataclass(frozen=True)
class Found:
    """One error that names a kernel."""

    what: str
    kernel: str
    place: str = ""
    """FILE:LINE without its folder, where the kernel was built with -lineinfo."""

    def words(self) -> str:
        """For a row: what, in which kernel, where."""
        return f"{self.what} in {self.kernel}" + (f" at {self.place}" if self.place else "")


@dataclass(frozen=True)
class Log:
    """A log as read. errors None: it has no summary, so the tool did not get to its end."""

    errors: int | None
    found: tuple[Found, ...]
    problem: str = ""
    """Its own words on why it could not look."""


@dataclass(frozen=True)
class Asked:
    """One program for the tools."""

    interpreter: Path
    device: Device
    request: Mapping[str, Any]
    """What the probe is told beside the candidate and where to answer: path, version, params, device, seed, inputs_seed, call_seed."""
    candidate: Path
    folder: Path
    """Of ours, for requests, logs and answers."""
    timeout_s: float
    """For each process."""


@dataclass(frozen=True)
class _Ran:
    log: Log
    status: int | None
    """None: it was ended for time."""
    seconds: float
    failed: str
    """Why the program did not get through; "" where it did."""


def audit(asked: Asked, tools: Sequence[SanitizerTool], view: SystemView | None = None) -> list[Audit]:
    """A row for each tool: failed where one of the candidate's own kernels errs."""
    if not tools:
        return []
    view = view or real_system()
    on_gpu = asked.device != "cpu" and not cuda_hidden(view.env) and asked.request.get("device") != "cpu"
    found = find_sanitizer(view) if on_gpu else Tool("compute-sanitizer", problem="the candidate ran on the CPU",
                                                     advice="judge it on a machine with an NVIDIA GPU")
    if found.path is None:
        mend = " or ".join(part for part in (found.fix, found.advice) if part)
        return [_row(tool, "not_applicable", f"{found.problem}; {mend}") for tool in tools]
    return [_audit(asked, tool, found.path) for tool in tools]


def read_log(text: str) -> Log:
    """A log of compute-sanitizer."""
    lines = [line.removeprefix("=========").strip() for line in text.splitlines() if line.startswith("=========")]
    errors: int | None = None
    found: list[Found] = []
    heading = ""
    for line in lines:
        summary = _SUMMARY.match(line)
        if summary:
            errors = int(summary[2] or summary[1]) if errors is None else errors
        elif race := _RACE.match(line):
            found.append(_found("Race between accesses to shared memory", race["at"]))
            heading = ""
        elif line.startswith("at ") and heading:
            found.append(_found(heading, line))
            heading = ""
        elif (frame := _FRAME.match(line)) and found:
            outer = _found(found[-1].what, f"at {frame['frame']}")
            found[-1] = outer if outer.kernel else found[-1]
        elif line and not line.startswith(("by ", "and ", "in ", "Address", "Access", "Saved", "Host Frame", *_NOT_HEADINGS)):
            heading = line
    problem = next((line for line in lines if _BROKEN.fullmatch(line) and not _RACE.match(line)), "")
    return Log(errors, tuple(found), problem[:300])


def _found(what: str, at: str) -> Found:
    match = _AT.match(at)
    if match is None:
        return Found(what[:200], at.removeprefix("at ")[:200])
    kernel, place = match["old"] or match["new"] or "", match["old_place"] or match["place"] or ""
    return Found(what.rstrip(".")[:200], kernel.strip()[:200], re.split(r"[/\\]", place)[-1][:200])


def _audit(asked: Asked, tool: SanitizerTool, path: Path) -> Audit:
    mine = _run(asked, tool, path, asked.candidate)
    log = mine.log
    if log.found or log.errors or mine.status == ERRORS_FOUND:
        return _judged(asked, tool, path, mine)
    if mine.status is None:
        return _row(tool, "not_applicable", f"not finished within {asked.timeout_s:.0f} s; give it longer with --timeout")
    if mine.failed:
        return _row(tool, "not_applicable", f"the candidate did not get through its call under compute-sanitizer: {mine.failed}")
    if log.errors is None:
        why = log.problem or f"it ended with status {mine.status} and without a summary"
        return _row(tool, "not_applicable", f"compute-sanitizer could not look: {why}; try one of this driver's CUDA toolkit")
    return _row(tool, "passed", f"0 errors in one call ({mine.seconds:.0f} s)")


def _judged(asked: Asked, tool: SanitizerTool, path: Path, mine: _Ran) -> Audit:
    """Errors are the candidate's unless the reference's kernels, or torch's libraries, have them too."""
    own = [found for found in mine.log.found if tool == "memcheck" or not LIBRARIES.match(found.kernel)]
    count = mine.log.errors or len(mine.log.found)
    if own:
        theirs = {found.kernel for found in _run(asked, tool, path, None).log.found}
        own = [found for found in own if found.kernel not in theirs]
    if own:
        return _row(tool, "failed", f"{count or 'some'} {'error' if count == 1 else 'errors'}, the first: {own[0].words()}")
    if mine.log.found:
        names = ", ".join(dict.fromkeys(found.kernel for found in mine.log.found))
        return _row(tool, "passed", f"no error in a kernel of the candidate's own; {count} in {names[:200]} (a library's, or the "
                                    "reference's too)")
    return _row(tool, "failed", f"{count or 'some'} errors that name no kernel; the log is compute-sanitizer's own")


def _run(asked: Asked, tool: SanitizerTool, path: Path, candidate: Path | None) -> _Ran:
    name = f"{tool}-{'candidate' if candidate else 'reference'}"
    log, said, answer = (asked.folder / f"sanitizer-{name}.{ending}" for ending in ("log", "said.log", "json"))
    request = write_json_atomic(asked.folder / f"sanitizer-{name}-request.json", {
        **asked.request, "candidate": str(candidate) if candidate else None, "result": str(answer)})
    words = [str(path), "--tool", tool, "--error-exitcode", str(ERRORS_FOUND), "--print-limit", str(PRINTED),
             "--target-processes", "application-only", "--log-file", str(log).replace("%", "%%")]
    words += ["--report-api-errors", "no"] if tool == "memcheck" else []  # torch probes the driver with calls that may fail
    words += [str(asked.interpreter), str(PROBE_START), "sanitize", str(request)]
    # A caching allocator hands out pieces of one large block, in which nothing is out of bounds.
    variables = {**probe_environment(asked.device), "PYTORCH_NO_CUDA_MEMORY_CACHING": "1", "KERNELWRIGHT_STARTER": myself(),
                 "KERNELWRIGHT_UNDER": "compute-sanitizer", "KERNELWRIGHT_PYCACHE": sys.pycache_prefix or ""}
    began = time.monotonic()
    try:
        process = start(words, env=variables, cwd=Path.cwd(), log_path=said)
    except OSError as error:
        return _Ran(Log(None, (), f"{path.name} could not be started: {error.strerror or error}"), 0, 0.0, "")
    try:
        while process.poll() is None and time.monotonic() - began < asked.timeout_s:
            time.sleep(POLL_S)
        status = process.poll()
    finally:
        terminate(process, grace_s=0.0)
    return _Ran(read_log(_read(log)), status, time.monotonic() - began, _failure(answer))


def _failure(answer: Path) -> str:
    try:
        called = Called.model_validate_json(_read(answer))
    except (ValidationError, RecursionError):
        return "its process ended before it answered"
    return "" if called.ok else " ".join(str(called.error.get("message", "no reason given")).split())[:300]


def _read(path: Path) -> str:
    try:
        with open_regular(path) as file:
            return file.read(MAX_LOG_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""


def _row(tool: SanitizerTool, result: Any, detail: str) -> Audit:
    return Audit(name=f"sanitizer: {tool}", result=result, detail=detail)

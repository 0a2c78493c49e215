"""Why ncu gave no counters, from its own words, and what mends it."""

from __future__ import annotations

import re

from ..model.counters import NoCounters
from ..model.errors import one_line
from .nsight import Tool
from .remedies import open_counters
from .system_view import SystemView

DENIED = "counters_denied"
_ERROR = re.compile(r"^==ERROR== *(.+)$", re.MULTILINE)
_UNKNOWN = re.compile(r"^==ERROR== *Failed to find metric (?:regex:)?['\"]?([A-Za-z0-9_.:]+)", re.MULTILINE)
_SUDO = re.compile(r"^(sudo: .*|.* is not (?:in the sudoers file|allowed to (?:execute|run sudo)).*)$", re.MULTILINE)
_TOO_OLD = re.compile(r"Profiling is not supported on (?:this )?device|not compatible with Nsight Compute|driver version is insufficient|"
                      r"(?:GPU|device|chip) is not supported|unsupported (?:GPU|device|chip)", re.IGNORECASE)
_BUSY = re.compile(r"driver resource was unavailable|already attached|another (?:profiler|tool|instance)|MULTIPLE_SUBSCRIBERS",
                   re.IGNORECASE)
_LOCK = re.compile(r"nsight-compute-lock|InterprocessLock", re.IGNORECASE)
_LIBRARY = re.compile(r"LibraryNotLoaded|Failed to (?:load|find) (?:the )?library", re.IGNORECASE)


def denied(view: SystemView, reason: str = "") -> NoCounters:
    """The driver keeps counters for administrators. reason: what was seen; "" where ncu said so."""
    fix, advice = open_counters(view)
    reason = reason or "the driver keeps counters for administrators (ERR_NVGPUCTRPERM)"
    return NoCounters(code=DENIED, reason=reason, fix=fix, advice=advice)


def no_tool(tool: Tool) -> NoCounters:
    """ncu is not there, or does not answer."""
    code = "no_ncu" if tool.path is None else "ncu_broken"
    return NoCounters(code=code, reason=one_line(tool.problem), fix=tool.fix or tool.advice,
                      advice=tool.advice if tool.fix else "")


def unknown_metrics(words: str) -> tuple[str, ...]:
    """Metrics that this ncu does not know for this GPU."""
    return tuple(dict.fromkeys(_UNKNOWN.findall(words)))


def why_none(words: str, said: str, tool: Tool, view: SystemView, *, sudo: bool) -> NoCounters | None:
    """What ncu's log (`words`) tells of a run that left no report; None when it names no reason of its own.

    said: what came on the process's stdout and stderr; sudo's refusals are there.
    """
    told = " ".join(errors(words))
    refused = _SUDO.search(said) if sudo else None
    if refused:
        return NoCounters(
            code="sudo_refused", reason=f"ncu could not be run under sudo: {one_line(refused[1])}",
            fix='echo "$USER ALL=(root) NOPASSWD: $(command -v env)" | sudo tee /etc/sudoers.d/kernelwright',
            advice="`sudo -v` right before the run does too, where sudo keeps a password for the terminal; such a rule for env is one for "
                   "every program: opening the counters to all (see doctor) gives away less")
    if "ERR_NVGPUCTRPERM" in words:
        return denied(view)
    version = f"ncu {tool.version or 'of unknown version'}"
    if old := _TOO_OLD.search(words):
        return NoCounters(code="ncu_too_old", reason=f"{version} does not go with this GPU or driver: {short(_line(words, old))}",
                          fix="install the Nsight Compute of this driver's CUDA version, and name it with --ncu-executable PATH",
                          advice="`nvidia-smi` names that CUDA version, `ncu --list-chips` the GPUs that an ncu knows")
    if _BUSY.search(told):
        return NoCounters(code="counters_busy", reason=f"another profiler holds the GPU's counters: {short(told)}",
                          fix="dcgmi profile --pause",
                          advice="or end the ncu, nsys or CUPTI program that runs on this GPU; dcgmi profile --resume undoes the pause")
    if _LOCK.search(words):
        return NoCounters(code="ncu_lock", reason="ncu's lock file belongs to another user", fix="sudo rm -f /tmp/nsight-compute-lock",
                          advice="or set TMPDIR to a folder of your own")
    if _LIBRARY.search(told):
        return NoCounters(code="ncu_library", reason=f"{version} lacks a library: {short(told)}",
                          fix="install Nsight Compute anew, as a whole, or name another ncu with --ncu-executable PATH")
    return None


def _line(words: str, found: re.Match[str]) -> str:
    """The line around a match, without ncu's mark."""
    line = words[words.rfind("\n", 0, found.start()) + 1:].partition("\n")[0]
    return line.removeprefix("==ERROR==").removeprefix("==WARNING==")


def errors(words: str) -> list[str]:
    """The errors in ncu's log."""
    return _ERROR.findall(words)


def short(text: str) -> str:
    """On one line of bounded length."""
    line = one_line(text)
    return line if len(line) <= 200 else line[:197] + "..."

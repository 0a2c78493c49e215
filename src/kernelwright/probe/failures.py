"""The one exception that the probe raises on purpose, and how any other exception becomes one."""

from __future__ import annotations

import errno
import os
import sysconfig
import traceback
from types import TracebackType
from typing import Any

EXIT_BAD_INPUT = 2
EXIT_MACHINE_LACKS = 3
EXIT_WORKLOAD_FAILED = 4
EXIT_INTERRUPTED = 130

CALLERS = ("loaders.py", "importing.py", "training.py")
_CUDA_PHRASES = ("Torch not compiled with CUDA enabled", "Found no NVIDIA driver", "No CUDA GPUs are available")
MAX_CHARACTERS = 600
"""Longest message of an exception of the workload's."""
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_HERE = os.path.realpath(os.path.dirname(__file__))


class ProbeFailure(Exception):
    """One clear failure: code, message, where, fix, exit_code (2 bad input, 3 machine lacks, 4 workload failed)."""

    def __init__(self, code: str, message: str, *, exit_code: int, where: str = "", fix: str = "", trace: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.exit_code = exit_code
        self.where = where
        self.fix = fix
        self.trace = trace

    def as_dict(self) -> dict[str, Any]:
        """The `error` object of result.json."""
        return {"code": self.code, "message": self.message, "where": self.where, "fix": self.fix, "exit_code": self.exit_code,
                "traceback": self.trace}


def bad_input(code: str, message: str, *, where: str = "", fix: str = "") -> ProbeFailure:
    """Exit 2."""
    return ProbeFailure(code, message, exit_code=EXIT_BAD_INPUT, where=where, fix=fix)


def machine_lacks(code: str, message: str, *, where: str = "", fix: str = "") -> ProbeFailure:
    """Exit 3."""
    return ProbeFailure(code, message, exit_code=EXIT_MACHINE_LACKS, where=where, fix=fix)


def workload_failed(code: str, message: str, *, where: str = "", fix: str = "") -> ProbeFailure:
    """Exit 4."""
    return ProbeFailure(code, message, exit_code=EXIT_WORKLOAD_FAILED, where=where, fix=fix)


def describe(error: BaseException, workload: str) -> ProbeFailure:
    """Any exception that left the workload's code (or ours) as a ProbeFailure. workload: path of its file."""
    if isinstance(error, ProbeFailure):
        return error
    failure = _classify(error, workload)
    failure.trace = "".join(traceback.format_exception(type(error), error, error.__traceback__))[-20000:]
    failure.where = failure.where or user_line(error.__traceback__, workload)
    return failure


def _classify(error: BaseException, workload: str) -> ProbeFailure:
    whole = _words(error)
    half = MAX_CHARACTERS // 2  # of another process's traceback, the end says most
    text = whole if len(whole) <= MAX_CHARACTERS else f"{whole[:half]} ... {whole[-half:]}"
    names = {kind.__name__ for kind in type(error).__mro__}
    if isinstance(error, KeyboardInterrupt):
        return ProbeFailure("interrupted", "interrupted", exit_code=EXIT_INTERRUPTED, fix="run the same command again")
    if isinstance(error, SystemExit):
        return workload_failed("workload_exited", f"the workload ended its own process (exit status {error.code!r})",
                               fix="keep sys.exit() and argument parsing under `if __name__ == \"__main__\":`")
    if isinstance(error, SyntaxError):
        return bad_input("syntax_error", text, where=f"{error.filename or workload}:{error.lineno or 1}", fix="correct the file")
    from . import languages  # which makes failures

    if isinstance(error, ModuleNotFoundError) and error.name:
        return languages.missing(error.name)
    if isinstance(error, OSError) and error.errno in _FULL:
        return machine_lacks("no_disk_space", f"the disk is full: {text}", fix="free some space there, or use a folder on another disk")
    if isinstance(error, MemoryError) or "OutOfMemoryError" in names or "can't allocate memory" in text:
        return workload_failed("out_of_memory", text, fix="use smaller inputs, or free memory that other processes hold on this device")
    if any(phrase in text for phrase in _CUDA_PHRASES):
        return machine_lacks("no_cuda", f"the workload asks for CUDA by itself: {text}",
                             fix="let it follow torch.cuda.is_available() (or take a `device` argument), or run where a GPU can be used")
    lacking = languages.toolchain(whole)
    if lacking is not None:
        return lacking
    if "InvalidCxxCompiler" in names or "No working C++ compiler" in whole:
        return machine_lacks("no_cxx_compiler", "torch.compile needs a C++ compiler on this machine and found none",
                             fix="install g++ (Debian: apt-get install g++), or run without --compile-mode")
    if "TritonMissing" in names or "working triton installation" in whole:
        return machine_lacks("no_triton", "torch.compile needs Triton on this GPU and found none", fix="install triton beside torch")
    if _is_internal(error.__traceback__):
        return workload_failed("probe_internal", f"kernelwright's probe failed: {text}",
                               fix="please report this with the traceback in raw/result.json")
    return workload_failed("workload_raised", text, fix="run it by itself (a model's call more than once) and correct the error")


def _words(error: BaseException) -> str:
    """Type and message. Never raises: an exception's own words may."""
    return traceback.format_exception_only(type(error), error)[-1].strip()


def _is_internal(trace: TracebackType | None) -> bool:
    """True when no frame but ours took part. CALLERS are where the workload's code is called from."""
    frames = traceback.extract_tb(trace)
    if not frames:
        return False
    return all(_realpath(frame.filename).startswith(_HERE + os.sep) for frame in frames) \
        and os.path.basename(frames[-1].filename) not in CALLERS


def user_line(trace: TracebackType | None, workload: str) -> str:
    """`file:line` of the innermost frame of the user's code: in the workload's folder, else outside of libraries, else the file."""
    folder = os.path.dirname(_realpath(workload))
    fallback = workload
    found = ""
    for frame in traceback.extract_tb(trace):
        name = _realpath(frame.filename)
        if not os.path.isfile(name) or _is_library(name):
            continue
        place = f"{frame.filename}:{frame.lineno}"
        fallback = place
        if name.startswith(folder + os.sep):
            found = place
    return found or fallback


def _realpath(name: str) -> str:
    try:
        return os.path.realpath(name)
    except OSError:  # the workload removed its own working folder, and the name is relative (<frozen importlib>)
        return name


def _is_library(name: str) -> bool:
    parts = name.split(os.sep)
    stdlib = os.path.realpath(sysconfig.get_paths()["stdlib"])
    return name.startswith((_HERE + os.sep, stdlib + os.sep)) or "site-packages" in parts or "dist-packages" in parts

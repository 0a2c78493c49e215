"""Exact source lines for the recording with stacks: a marker in the recording each time the user's code goes to another line.

Kineto's Python frames carry the line where a function begins, and torch's event tree the line of a call, but no event at all
for operators of the language (`x @ w`, `x[0]`, `x.T`): C slots raise no profile event. A trace function (as debuggers and
coverage use) sees every line. It works in the user's own frames only, and writes a marker "kernelwright.line:<n>" into the
recording: an operator's line is that of the last marker before it on its thread. <n> numbers a table of stacks.
"""

from __future__ import annotations

import inspect
import os
import sys
import sysconfig
import threading
import time
from types import CodeType, FrameType
from typing import Any

import torch
from torch.autograd.profiler import record_function

from .results import write_json_gz

LINE = "kernelwright.line:"
LINES_FILE = "lines.json.gz"
UNKNOWN = -1
MOST_MARKERS = 50_000
MOST_STACKS = 10_000
MOST_FRAMES = 30
"""Of the user's own frames in one stack; the outermost ones beyond are counted as folded."""
MOST_SECONDS = 20.0
_RESUMABLE = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_HERE = os.path.dirname(os.path.abspath(__file__))

_RESUMED = "torch_dynamo_resume_in_"

Entry = Any
"""Of a stack: [file, line, function, compiled] for a frame of the user's, a number for folded ones. compiled: 0 no;
1 torch.compile's code at its beginning, where the line stands for the whole compiled part; 2 its code at a line of its own."""


class LineMarkers:
    """Marks lines between start() and stop(), on this thread and on threads that begin in between.

    folder: the workload's; files inside it get paths relative to it. Does nothing where another trace function (a debugger,
    coverage) is set already; `note` says so.
    """

    def __init__(self, folder: str) -> None:
        self.note = ""
        self.stacks: list[list[Entry]] = []
        self._folder = os.path.abspath(folder)
        self._libraries = _library_folders()
        self._user_files: dict[str, str | None] = {}
        self._numbers: dict[tuple[Any, ...], int] = {}
        self._compiled: dict[CodeType, bool] = {}
        self._spans: dict[int, Any] = {}
        self._last: dict[int, int] = {}
        self._markers = 0
        self._deadline = 0.0
        self._running = False
        self._marked_frames: list[FrameType] = []
        self._thread_trace: Any = None

    def start(self) -> None:
        """Begin; the recording must be running."""
        if sys.gettrace() is not None:
            self.note = "another trace function (a debugger or coverage) is active: source lines are those of function definitions"
            return
        trace = self._enter
        if "torch._dynamo" in sys.modules:
            # Otherwise the trace function, called from compiled code, would be compiled too.
            trace = torch.compiler.disable(trace)
            self._step = torch.compiler.disable(self._step)  # type: ignore[method-assign]
        self._running, self._deadline = True, time.monotonic() + MOST_SECONDS
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if frame.f_trace is None and self._users(frame.f_code.co_filename) is not None:
                frame.f_trace = self._step
                self._marked_frames.append(frame)
            frame = frame.f_back
        self._thread_trace = threading.gettrace()
        threading.settrace(trace)
        sys.settrace(trace)

    def stop(self) -> None:
        """End; harmless when never started."""
        if self._running:
            sys.settrace(None)
            threading.settrace(self._thread_trace)
        self._running = False
        for frame in self._marked_frames:
            frame.f_trace = None
        self._marked_frames.clear()

    def write(self, out_dir: str) -> str | None:
        """The table of stacks into out_dir; returns its file name, None without any. Raises OSError."""
        if not self.stacks:
            return None
        write_json_gz(os.path.join(out_dir, LINES_FILE), {"version": 1, "prefix": LINE, "stacks": self.stacks})
        return LINES_FILE

    def _enter(self, frame: FrameType, event: str, _arg: Any) -> Any:
        code = frame.f_code
        if not self._running or self._users(code.co_filename) is None:
            return None
        if code.co_flags & _RESUMABLE:
            # A generator that goes on within its line raises no line event.
            self._mark(frame)
        return self._step

    def _step(self, frame: FrameType, event: str, _arg: Any) -> Any:
        if not self._running:
            return None
        if event == "line":
            self._mark(frame)
        elif event == "return":
            self._mark(frame.f_back)
        return self._step

    def _mark(self, frame: FrameType | None) -> None:
        number, thread = self._number(frame), threading.get_ident()
        if self._last.get(thread) == number:
            return
        self._last[thread] = number
        self._markers += 1
        if number == UNKNOWN or self._markers > MOST_MARKERS or time.monotonic() > self._deadline:
            # Without this last marker all that follows would seem to stand on one line.
            number, self._running = UNKNOWN, False
            self.note = "the step runs through too many lines to mark them all: the later source lines are those of function definitions"
            sys.settrace(None)
            threading.settrace(self._thread_trace)
        span = self._spans.get(number)
        if span is None:
            span = self._spans[number] = _span(f"{LINE}{number}")
        with span:
            pass

    def _number(self, frame: FrameType | None) -> int:
        """Number of the stack that ends in this frame, UNKNOWN when the table is full."""
        key: list[Any] = []
        folded = 0
        while frame is not None:
            if self._users(frame.f_code.co_filename) is None:
                folded += 1
            else:
                if folded and key:
                    key.append(folded)
                folded = 0
                key += (frame.f_code, frame.f_lineno)
            frame = frame.f_back
        # Left out: what is below the innermost user frame (the operator says it), and outside the outermost (the probe).
        known = self._numbers.get(tuple(key))
        if known is None:
            if len(self.stacks) >= MOST_STACKS:
                return UNKNOWN
            known = self._numbers[tuple(key)] = len(self.stacks)
            self.stacks.append(self._entries(key))
        return known

    def _entries(self, key: list[Any]) -> list[Entry]:
        """Outermost first."""
        entries: list[Entry] = []
        parts, frames = iter(key), 0
        for part in parts:
            if isinstance(part, int):
                entries.append(part)
                continue
            line, frames = next(parts), frames + 1
            if frames > MOST_FRAMES:
                entries.append(sum(1 for rest in key if isinstance(rest, CodeType)) - MOST_FRAMES)
                break
            entries.append([self._users(part.co_filename), line, part.co_name, self._compiled_state(part, line)])
        return entries[::-1]

    def _compiled_state(self, code: CodeType, line: int) -> int:
        if code not in self._compiled:
            self._compiled[code] = any(name.startswith(("__compiled_fn", "__resume_at")) for name in code.co_names)
        if not self._compiled[code]:
            return 0
        name = code.co_name
        begins = line == code.co_firstlineno or (name.startswith(_RESUMED) and name.endswith(f"_at_{line}"))
        return 1 if begins else 2

    def _users(self, file: str) -> str | None:
        """The path to show for a file of the user's, None for a library's."""
        if file not in self._user_files:
            self._user_files[file] = self._shown(file)
        return self._user_files[file]

    def _shown(self, file: str) -> str | None:
        if file.startswith("<"):
            return None
        path = os.path.abspath(file)
        parts = path.split(os.sep)
        if "site-packages" in parts or "dist-packages" in parts or any(part.startswith("torchinductor_") for part in parts):
            return None
        if path.startswith(self._libraries):
            return None
        for folder in (self._folder, *sys.path):
            prefix = os.path.abspath(folder).rstrip(os.sep) + os.sep
            if path.startswith(prefix):
                return path[len(prefix):].replace(os.sep, "/")
        return path.replace(os.sep, "/")


def _library_folders() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    folders = {paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib") if name in paths}
    folders |= {_HERE, os.path.dirname(os.path.abspath(torch.__file__)), os.path.dirname(os.path.abspath(os.__file__))}
    folders |= {os.path.abspath(value) for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR") if (value := os.environ.get(name))}
    return tuple(folder.rstrip(os.sep) + os.sep for folder in folders)


def _span(name: str) -> Any:
    """A range in the recording. The fast one passes no dispatcher, so that modes of the workload don't see it."""
    fast = getattr(getattr(torch._C, "_profiler", None), "_RecordFunctionFast", None)
    return fast(name) if fast is not None else record_function(name)

"""nn.Module path and source line of operator calls, from a second recording of one step with Python stacks.

Recording stacks slows the host several times, so the timeline comes from a recording without them. The two are joined by
position: within one step and thread both must show the same operator names in the same order. Where they don't, we abstain.
Exact lines come from the probe's markers; without them a line is where the function begins, as Kineto's frames have it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..model.profile import SourceKind
from ..model.table import EventTable, Int64
from ..model.trace import LINE_PREFIX, MODULE_PREFIX, Trace
from ..readers.lines import UserStack
from ..timeline.nesting import Nesting, threads
from .calls import Calls
from .inductor import is_compiled_region


class Place(NamedTuple):
    """Where in the user's code something was called from. None: not known."""

    module: str | None = None
    source: str | None = None
    """"model.py:12"."""
    kind: SourceKind | None = None
    """Whether source is the line of the call or only where its function begins."""
    stack: int | None = None
    """Number in the table of stacks."""


NOWHERE = Place()
_JOINED_RUNTIME = (
    "cudaGraphLaunch", "cuGraphLaunch", "cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "cuStreamSynchronize",
    "cuCtxSynchronize", "cuEventSynchronize", "hipGraphLaunch", "hipStreamSynchronize", "hipDeviceSynchronize", "hipEventSynchronize")
"""Runtime calls that matter outside of operators too, by the beginning of their names: graph launches and waits."""
_FRAME = re.compile(r"^(?P<file>[^<(][^(]*\.py)\((?P<line>\d+)\): (?P<function>.*)$")
_NOT_THE_USERS = ("torch/", "torchgen/", "functorch/", "triton/", "numpy/", "kernelwright/", "kernelwright_probe/")
"""Tops of the paths, as Kineto shortens them, whose frames are the machinery's."""
_NOT_THE_USERS_ANYWHERE = ("site-packages/", "dist-packages/", "/lib/python", "torchinductor_", "kernelwright/probe/")


class Places:
    """Rows of the timeline -> places. stacks: the recording with stacks; lines: the stacks that its markers name."""

    def __init__(self, calls: Calls, stacks: Trace | None, lines: Sequence[UserStack] = ()) -> None:
        self.warnings: list[str] = []
        self._calls = calls
        self._operators: dict[int, Place] = {}
        self._runtime: dict[int, Place] = {}
        if stacks is not None:
            self._join(stacks, lines)

    def of(self, row: int) -> Place:
        """Place of one operator call (a row of trace.operators)."""
        return self._operators.get(row, NOWHERE)

    def of_runtime(self, row: int) -> Place:
        """Place of one CUDA runtime call (a row of trace.runtime): that of the operator around it; of a synchronising call or a
        graph launch outside any operator, such as torch.cuda.synchronize(), its own."""
        runtime = self._calls.trace.runtime
        operator = int(self._calls.nesting.innermost(*(column[row:row + 1] for column in (runtime.process, runtime.thread,
                                                                                         runtime.start_ns)))[0])
        return self.of(operator) if operator >= 0 else self._runtime.get(row, NOWHERE)

    def _join(self, stacks: Trace, lines: Sequence[UserStack]) -> None:
        theirs = Calls(stacks)
        finder = _Finder(theirs, lines)
        differing = _pair(self._calls, theirs, lambda calls: (calls.table, None), self._operators, finder.place)
        _pair(self._calls, theirs, lambda calls: (calls.trace.runtime, _joined(calls.trace.runtime)), self._runtime, finder.runtime_place)
        if differing:
            self.warnings.append(f"{stacks.source}: the recording with stacks shows other operators than the timeline in {differing} "
                                 "step(s) or threads; their modules and source lines are not known")


Keep = npt.NDArray[np.bool_] | None


def _pair(calls: Calls, stack_calls: Calls, choose: Callable[[Calls], tuple[EventTable, Keep]], found: dict[int, Place],
          place: Callable[[int], Place]) -> int:
    """Join rows by position, each step of the timeline with the one step of the other; returns how many don't fit."""
    table, keep = choose(calls)
    other, other_keep = choose(stack_calls)
    recorded = _by_thread(stack_calls, other, other_keep, 0)
    differing = 0
    for step in range(len(calls.trace.steps)):
        for slot, rows in enumerate(_by_thread(calls, table, keep, step)):
            theirs = recorded[slot] if slot < len(recorded) else []
            if [table.name(row) for row in rows] != [other.name(row) for row in theirs]:
                differing += 1
                continue
            found.update((row, place(twin)) for row, twin in zip(rows, theirs, strict=True))
    return differing


def _by_thread(calls: Calls, table: EventTable, keep: Keep, step: int) -> list[list[int]]:
    """Rows of one step per thread: the step's own thread first, the others in order of their first call."""
    inside = (calls.step if table is calls.table else calls.steps_of(table)) == step
    rows = np.flatnonzero(inside if keep is None else inside & keep)
    steps = calls.trace.steps
    home = (int(steps.process[step]), int(steps.thread[step]))
    order = [home, *(thread for thread in threads(table, rows) if thread != home)]
    return [[int(r) for r in rows[(table.process[rows] == process) & (table.thread[rows] == thread)]] for process, thread in order]


def _joined(runtime: EventTable) -> npt.NDArray[np.bool_]:
    chosen = np.array([name.startswith(_JOINED_RUNTIME) for name in runtime.names], dtype=bool)
    kept: npt.NDArray[np.bool_] = chosen[runtime.name_id] if len(runtime) else np.zeros(0, dtype=bool)
    return kept


class _Finder:
    """Module and user frame around calls of the recording with stacks."""

    def __init__(self, calls: Calls, lines: Sequence[UserStack]) -> None:
        trace = calls.trace
        self.calls = calls
        self._markers = Markers(trace.lines, lines)
        is_module = np.array([name.startswith(MODULE_PREFIX) for name in trace.ranges.names], dtype=bool)
        self._modules = self._around(Nesting(trace.ranges, is_module[trace.ranges.name_id]))
        frames = Nesting(trace.python)
        self._frames = self._around(frames)
        lines_of_names = [user_line(name) for name in trace.python.names]
        # Enclosing frames come first, so one pass gives every frame its nearest line of the user's.
        self._line_of_frame: list[str | None] = []
        for row, parent in enumerate(frames.parent.tolist()):
            own = lines_of_names[int(trace.python.name_id[row])]
            self._line_of_frame.append(own if own is not None or parent < 0 else self._line_of_frame[parent])

    def _around(self, nesting: Nesting) -> Int64:
        table = self.calls.table
        return nesting.innermost(table.process, table.thread, table.start_ns)

    def place(self, row: int) -> Place:
        """A backward call has the line of the forward call that it differentiates, unless the user's own backward() runs."""
        own = self._own(row)
        forward_row = self.calls.forward_call(row)
        if forward_row is None:
            return own
        forward = self._own(forward_row)
        mine = own.source is not None and (forward.source is None or self._in_users_backward(row))
        chosen = own if mine else forward
        return chosen._replace(module=own.module or forward.module)

    def runtime_place(self, row: int) -> Place:
        """Place of a runtime call."""
        runtime = self.calls.trace.runtime
        return self._markers.at(int(runtime.process[row]), int(runtime.thread[row]), int(runtime.start_ns[row])) or NOWHERE

    def _own(self, row: int) -> Place:
        module, frame = int(self._modules[row]), int(self._frames[row])
        name = self.calls.trace.ranges.name(module).removeprefix(MODULE_PREFIX) if module >= 0 else ""
        # The outermost model's own path is empty.
        table = self.calls.table
        exact = self._markers.at(int(table.process[row]), int(table.thread[row]), int(table.start_ns[row]))
        if (exact is None or exact.source is None) and is_compiled_region(self.calls.name(row)):
            # It opens before the frame that it runs: a compiled model that no line of the user's calls.
            exact = self._markers.first(int(table.process[row]), int(table.thread[row]), int(table.start_ns[row]), int(table.end_ns[row]))
        if exact is not None:
            return exact._replace(module=name or None)
        line = self._line_of_frame[frame] if frame >= 0 else None
        return Place(name or None, line, "definition" if line else None)

    def _in_users_backward(self, row: int) -> bool:
        """Whether the user's code has run, on this thread, since the outermost call around this one began."""
        table, outermost = self.calls.table, (self.calls.nesting.ancestors(row) or [row])[-1]
        return self._markers.between(int(table.process[row]), int(table.thread[row]), int(table.start_ns[outermost]),
                                     int(table.start_ns[row]))


class Markers:
    """The line markers by thread."""

    def __init__(self, table: EventTable, stacks: Sequence[UserStack]) -> None:
        self._stacks = stacks
        self._by_thread: dict[tuple[int, int], tuple[Int64, list[str]]] = {}
        for process, thread in threads(table, np.arange(len(table))) if stacks else ():
            rows = np.flatnonzero((table.process == process) & (table.thread == thread))
            self._by_thread[process, thread] = (table.start_ns[rows], [table.name(int(row)).removeprefix(LINE_PREFIX) for row in rows])

    def at(self, process: int, thread: int, point: int) -> Place | None:
        """The place that the last marker before a moment names; None where it names none."""
        starts, numbers = self._of(process, thread)
        last = int(np.searchsorted(starts, point, side="right")) - 1
        return self._place(numbers[last]) if last >= 0 else None

    def first(self, process: int, thread: int, low: int, high: int) -> Place | None:
        """The place that the first marker in [low, high) names."""
        starts, numbers = self._of(process, thread)
        first = int(np.searchsorted(starts, low))
        return self._place(numbers[first]) if first < starts.size and starts[first] < high else None

    def between(self, process: int, thread: int, low: int, high: int) -> bool:
        """Whether there is a marker in [low, high)."""
        starts, _ = self._of(process, thread)
        return bool(np.searchsorted(starts, high) > np.searchsorted(starts, low))

    def _of(self, process: int, thread: int) -> tuple[Int64, list[str]]:
        return self._by_thread.get((process, thread), (np.zeros(0, dtype=np.int64), []))

    def _place(self, marker: str) -> Place | None:
        if not (marker.isdecimal() and marker.isascii() and len(marker) < 10) or int(marker) >= len(self._stacks):
            return None
        number = int(marker)
        stack = self._stacks[number]
        if stack.source is not None:
            return Place(None, stack.source, "line", number)
        if stack.definition is not None:
            return Place(None, stack.definition, "definition", number)
        return NOWHERE


def user_line(frame: str) -> str | None:
    """"model.py(12): forward" -> "model.py:12"; None for frames of torch, Python itself, installed packages and built-ins.

    The line is the one that Kineto records: where the function begins.
    """
    match = _FRAME.match(frame)
    if match is None:
        return None
    file = match["file"].replace("\\", "/")
    if file.startswith(_NOT_THE_USERS) or any(part in file for part in _NOT_THE_USERS_ANYWHERE):
        return None
    if not file.startswith("/") and file.split("/")[0].removesuffix(".py") in sys.stdlib_module_names:
        return None
    return f"{file}:{match['line']}"

"""nn.Module path and source line of operator calls, from a second recording of one step with Python stacks.

Recording stacks slows the host several times, so the timeline comes from a recording without them. The two are joined by
position: within one step and thread both must show the same operator names in the same order. Where they don't, we abstain.
"""

from __future__ import annotations

import re
import sys

import numpy as np

from ..model.table import Int64
from ..readers.kineto import MODULE_PREFIX, Trace
from ..timeline.nesting import Nesting, threads
from .calls import Calls

Place = tuple[str | None, str | None]
"""(module path, source line)."""

_FRAME = re.compile(r"^(?P<file>[^<(][^(]*\.py)\((?P<line>\d+)\): (?P<function>.*)$")
_NOT_THE_USERS = ("torch/", "torchgen/", "functorch/", "triton/", "numpy/", "kernelwright/", "kernelwright_probe/")
"""Tops of the paths, as Kineto shortens them, whose frames are the machinery's."""
_NOT_THE_USERS_ANYWHERE = ("site-packages/", "dist-packages/", "/lib/python", "torchinductor_", "kernelwright/probe/")


class Places:
    """Operator row of the timeline -> (module, source line)."""

    def __init__(self, calls: Calls, stacks: Trace | None) -> None:
        self.warnings: list[str] = []
        self._places: dict[int, Place] = {}
        if stacks is not None:
            self._join(calls, stacks)

    def of(self, row: int) -> Place:
        """Module and source of one call; (None, None) where unknown."""
        return self._places.get(row, (None, None))

    def _join(self, calls: Calls, stacks: Trace) -> None:
        stack_calls = Calls(stacks)
        recorded = _by_thread(stack_calls, 0)
        finder = _Finder(stack_calls)
        differing = 0
        for step in range(len(calls.trace.steps)):
            for slot, rows in enumerate(_by_thread(calls, step)):
                theirs = recorded[slot] if slot < len(recorded) else []
                if [calls.name(row) for row in rows] != [stack_calls.name(row) for row in theirs]:
                    differing += 1
                    continue
                for row, other in zip(rows, theirs, strict=True):
                    self._places[row] = finder.place(other)
        if differing:
            self.warnings.append(f"{stacks.source}: the recording with stacks shows other operators than the timeline in {differing} "
                                 "step(s) or threads; their modules and source lines are not known")


def _by_thread(calls: Calls, step: int) -> list[list[int]]:
    """Rows of one step per thread: the step's own thread first, the others in order of their first call."""
    rows = np.flatnonzero(calls.step == step)
    steps, table = calls.trace.steps, calls.table
    home = (int(steps.process[step]), int(steps.thread[step]))
    order = [home, *(thread for thread in threads(table, rows) if thread != home)]
    return [[int(r) for r in rows[(table.process[rows] == process) & (table.thread[rows] == thread)]] for process, thread in order]


class _Finder:
    """Module and user frame around calls of the recording with stacks."""

    def __init__(self, calls: Calls) -> None:
        trace = calls.trace
        self.calls = calls
        is_module = np.array([name.startswith(MODULE_PREFIX) for name in trace.ranges.names], dtype=bool)
        self._modules = self._around(Nesting(trace.ranges, is_module[trace.ranges.name_id]))
        frames = Nesting(trace.python)
        self._frames = self._around(frames)
        lines = [user_line(name) for name in trace.python.names]
        # Enclosing frames come first, so one pass gives every frame its nearest line of the user's.
        self._line_of_frame: list[str | None] = []
        for row, parent in enumerate(frames.parent.tolist()):
            own = lines[int(trace.python.name_id[row])]
            self._line_of_frame.append(own if own is not None or parent < 0 else self._line_of_frame[parent])

    def _around(self, nesting: Nesting) -> Int64:
        table = self.calls.table
        return nesting.innermost(table.process, table.thread, table.start_ns)

    def place(self, row: int) -> Place:
        """A backward call takes what it lacks from the forward call that it differentiates."""
        module, source = self._own(row)
        if (module is None or source is None) and (forward := self.calls.forward_call(row)) is not None:
            forward_module, forward_source = self._own(forward)
            module, source = module or forward_module, source or forward_source
        return module, source

    def _own(self, row: int) -> Place:
        module, frame = int(self._modules[row]), int(self._frames[row])
        name = self.calls.trace.ranges.name(module).removeprefix(MODULE_PREFIX) if module >= 0 else ""
        # The outermost model's own path is empty.
        return name or None, self._line_of_frame[frame] if frame >= 0 else None


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

"""annotation's recordings, for steps that the script makes itself: started and stopped from outside instead of calling the step."""

from __future__ import annotations

import contextlib
import gc
from contextlib import ExitStack
from typing import Any

import torch
from torch.autograd.profiler import record_function

from . import annotation
from .facts import is_compiled
from .failures import workload_failed
from .lines import LineMarkers
from .recording import Recorder
from .timers import synchronize


class Recording:
    """One recording of consecutive steps; what it holds is written by `finish`."""

    file = annotation.TRACE_FILE

    def __init__(self, device: str, out_dir: str) -> None:
        self.device = device
        self.out_dir = out_dir
        self._open: ExitStack = ExitStack()
        self._step: Any = None

    def start(self) -> None:
        """Start recording on an idle device. Raises profiler_busy when the script profiles by itself."""
        if torch.autograd._profiler_enabled():
            raise workload_failed("profiler_busy", "the script runs a profiler of its own during the profiled steps",
                                  fix="switch it off, or use --mode event")
        annotation._start_profiler(lambda: torch.ones(1, device=self.device), self.device)
        self._enter(self._open)
        synchronize(self.device)

    def _enter(self, stack: ExitStack) -> None:
        stack.enter_context(annotation.nvtx_stages())
        activities = annotation._activities(self.device)
        self.profiler = stack.enter_context(Recorder(activities=activities, record_shapes=True, profile_memory=True))

    def begin_step(self) -> None:
        """The step's range opens."""
        self._step = record_function(annotation.STEP)
        self._step.__enter__()

    def end_step(self) -> None:
        """The step's range closes."""
        step, self._step = self._step, None
        if step is not None:
            step.__exit__(None, None, None)

    def finish(self) -> list[str]:
        """Stop and write out_dir/<file>; returns warnings."""
        synchronize(self.device)
        self._open.close()
        return annotation._export(self.profiler, self.device, self.out_dir, self.file)

    def drop(self) -> None:
        """Stop and write nothing."""
        with contextlib.suppress(Exception):
            self.end_step()
        with contextlib.suppress(Exception):
            self._open.close()


class StacksRecording(Recording):
    """With Python stacks, and ranges around the calls of the modules that the optimizers train (in eager scripts)."""

    file = annotation.STACKS_FILE

    def __init__(self, device: str, out_dir: str, optimizers: list[Any], folder: str) -> None:
        super().__init__(device, out_dir)
        self.optimizers = optimizers
        self.markers = LineMarkers(folder)
        self.lines_file: str | None = None

    def begin_step(self) -> None:
        """The step's range opens, and the lines of the script's own code are marked."""
        super().begin_step()
        self.markers.start()

    def end_step(self) -> None:
        """The step's range closes."""
        self.markers.stop()
        super().end_step()

    def finish(self) -> list[str]:
        """Stop and write the recording and the table of lines; returns warnings."""
        warnings = super().finish()
        self.lines_file = self.markers.write(self.out_dir)
        return warnings + ([self.markers.note] if self.markers.note else [])

    def _enter(self, stack: ExitStack) -> None:
        stack.enter_context(annotation.nvtx_stages())
        # Ranges are hooks on modules: under torch.compile these would compile everything anew.
        model = None if is_compiled(None) else trained_model(self.optimizers)
        stack.enter_context(annotation.module_ranges(model))
        activities = annotation._activities(self.device)
        self.profiler = stack.enter_context(Recorder(activities=activities, record_shapes=True, with_stack=True))


def trained_model(optimizers: list[Any]) -> torch.nn.Module | None:
    """The outermost module that owns parameters of these optimizers; several under their class names; None without."""
    trained = {id(weight) for optimizer in optimizers for group in optimizer.param_groups for weight in group["params"]}
    # type() instead of isinstance(): a lazy object's __class__ may run code of the script's.
    modules = [item for item in gc.get_objects() if issubclass(type(item), torch.nn.Module) and "_modules" in item.__dict__]
    owning = [module for module in modules if any(id(weight) in trained for weight in module.parameters())]
    inner = {id(child) for module in owning for child in module.modules() if child is not module}
    roots = [module for module in owning if id(module) not in inner]
    if len(roots) < 2:
        return roots[0] if roots else None
    table = torch.nn.ModuleDict()
    for root in roots:
        name = type(root).__name__
        table[name if name not in table and not hasattr(table, name) else f"{name}_{len(table)}"] = root
    return table


def parameters_of(optimizers: list[Any]) -> list[torch.Tensor]:
    """The optimizers' parameters, each once."""
    found = {id(weight): weight for optimizer in optimizers for group in optimizer.param_groups for weight in group["params"]}
    return list(found.values())


def default_device() -> str:
    """"cuda" once the process uses it, else "cpu". Asks nothing of the driver: a later fork must stay possible."""
    return "cuda" if torch.cuda.is_initialized() else "cpu"


__all__ = ["Recording", "StacksRecording", "default_device", "parameters_of", "trained_model"]

"""Where a script's steps end: calls of optimizers, or a range that the user names.

Nothing here imports torch: `watch_torch` waits until the script does, so that what the script sets before its own
`import torch` (OMP_NUM_THREADS, CUDA_VISIBLE_DEVICES, ...) works as in a plain run.
"""

from __future__ import annotations

import functools
import importlib.machinery
import importlib.util
import os
import sys
import threading
import types
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Protocol

PATIENCE = 8
"""An optimizer that has not stepped while another one has this often is not waited for, neither at first nor later on (WGAN: 5 critic
steps a generator step)."""
_OURS = "_kernelwright_step"


class Steps(Protocol):
    """What is told about a script's steps. Any of these may raise to end the script."""

    def before(self) -> None:
        """A step's work is about to go on."""

    def begin(self) -> None:
        """A step begins."""

    def end(self) -> None:
        """A step has ended."""


class _Mark:
    """`stepped` is set by compiled code: a write that nothing compiled reads back, so no guard depends on it."""

    stepped = False


MARK = _Mark()


class TorchWatcher:
    """Import hook: calls `ready(torch)` once, right after the script's first `import torch`."""

    def __init__(self, ready: Callable[[Any], None]) -> None:
        self.ready = ready

    def find_spec(self, name: str, path: Sequence[str] | None, target: types.ModuleType | None = None) -> Any:
        """Only torch's own spec is looked at, and only once."""
        if name != "torch":
            return None
        sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not self]
        spec = importlib.util.find_spec(name)
        if spec is None or not isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            return spec
        run = spec.loader.exec_module

        def exec_module(module: types.ModuleType) -> None:
            run(module)
            self.ready(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def watch_torch(ready: Callable[[Any], None]) -> None:
    """Call ready(torch) as soon as torch is imported."""
    sys.meta_path.insert(0, TorchWatcher(ready))


class OptimizerSteps:
    """Finds the ends of training iterations in the calls of torch.optim optimizers.

    Of several optimizers (a GAN's), the one that was the last to step for the first time ends an iteration. Counting
    starts once every optimizer has stepped, or one has PATIENCE times. A step that GradScaler skips counts as well.
    When the one that ends iterations is gone or silent for PATIENCE steps of another (a second stage), that one takes its place.
    """

    def __init__(self, steps: Steps) -> None:
        self.steps = steps
        self.process = os.getpid()
        self.calls = 0
        self.skipped = 0
        self.captured = 0
        """Steps inside a CUDA graph capture: its replays run no Python, so they can't be counted."""
        self.seen: dict[int, int] = {}
        self.anchor: int | None = None
        self.successions = 0
        """How often another optimizer took the place of the one that ended the iterations."""
        self._since: dict[int, int] = {}
        self.known: weakref.WeakSet[Any] = weakref.WeakSet()
        self._optimizer_keys: set[int] = set()
        """The keys of `seen` that are optimizers and no compiled functions."""
        self._local = threading.local()

    @property
    def optimizers(self) -> list[Any]:
        """The optimizers that have stepped and are still there."""
        return [optimizer for optimizer in self.known if id(optimizer) in self.seen]

    def install(self, torch: Any) -> None:
        """Wrap every optimizer class when its first instance is made, GradScaler, and functions from torch.compile."""
        patch = torch.optim.Optimizer._patch_step_function

        def _patch_step_function(optimizer: Any) -> None:
            patch(optimizer)
            self._wrap_class(type(optimizer), torch)
            if self.process == os.getpid():
                self.known.add(optimizer)

        torch.optim.Optimizer._patch_step_function = _patch_step_function
        self._wrap_scaler(torch)
        self._wrap_compile(torch)

    def _wrap_class(self, kind: type, torch: Any) -> None:
        if getattr(kind.step, _OURS, False):  # type: ignore[attr-defined]
            return
        owner: Any = next(base for base in kind.__mro__ if "step" in base.__dict__)
        inner = owner.__dict__["step"]
        plain = getattr(inner, "__wrapped__", None) if getattr(inner, "hooked", False) else None
        owner.step = self._wrapped(inner, torch)
        # torch before 2.6 puts `step.__wrapped__` in the place of a step with hooks when it compiles: that must count as well.
        owner.step.__wrapped__ = self._wrapped(plain or inner, torch)

    def _wrapped(self, step: Any, torch: Any) -> Any:
        is_compiling, run = torch.compiler.is_compiling, self._run

        @functools.wraps(step)
        def counted(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            if is_compiling():
                result = step(optimizer, *args, **kwargs)
                MARK.stepped = True
                return result
            return run(torch, step, optimizer, args, kwargs)

        setattr(counted, _OURS, True)
        return counted

    def _run(self, torch: Any, step: Any, optimizer: Any, args: Any, kwargs: Any) -> Any:
        if self.process != os.getpid() or getattr(self._local, "inside", False):  # a forked child; a step within a step
            return step(optimizer, *args, **kwargs)
        self.steps.before()
        self._local.inside = True
        try:
            result = step(optimizer, *args, **kwargs)
        finally:
            self._local.inside = False
        if torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():
            self.captured += 1
            return result
        self._optimizer_keys.add(id(optimizer))
        self._stepped(optimizer)
        return result

    def _stepped(self, optimizer: Any) -> None:
        self.calls += 1
        key = id(optimizer)
        self.seen[key] = self.seen.get(key, 0) + 1
        if self.anchor is None:
            waiting = any(id(other) not in self.seen for other in self.known)
            if waiting and max(self.seen.values()) < PATIENCE:
                return
            self.anchor = list(self.seen)[-1]
        elif key != self.anchor and self._succeeds(key):
            self.anchor = key
            self.successions += 1
        if key == self.anchor:
            self._since.clear()
            self.steps.end()
            self.steps.begin()

    def _succeeds(self, key: int) -> bool:
        self._since[key] = self._since.get(key, 0) + 1
        gone = self.anchor in self._optimizer_keys and all(id(other) != self.anchor for other in self.known)
        return gone or self._since[key] >= PATIENCE

    def _wrap_scaler(self, torch: Any) -> None:
        scaler = getattr(torch.amp, "GradScaler", None)
        if scaler is None:
            return
        step = scaler.step

        @functools.wraps(step)
        def scaled(this: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            before = self.calls + self.captured
            result = step(this, optimizer, *args, **kwargs)
            if self.calls + self.captured == before and self.process == os.getpid():
                self.skipped += 1
                self.steps.before()
                self._stepped(optimizer)
            return result

        scaler.step = scaled

    def _wrap_compile(self, torch: Any) -> None:
        """Functions from torch.compile are followed by a look at MARK: a step inside one runs no wrapper of ours."""
        compile_ = torch.compile

        @functools.wraps(compile_)
        def compile(model: Any = None, *args: Any, **kwargs: Any) -> Any:
            result = compile_(model, *args, **kwargs)
            own = isinstance(model, types.FunctionType) or isinstance(getattr(model, "__self__", None), torch.optim.Optimizer)
            return self._watched(result, torch) if own and isinstance(result, types.FunctionType) else result

        torch.compile = compile

    def _watched(self, compiled: Any, torch: Any) -> Any:
        steps_inside, is_compiling = False, torch.compiler.is_compiling

        @functools.wraps(compiled)
        def watched(*args: Any, **kwargs: Any) -> Any:
            nonlocal steps_inside
            if is_compiling() or self.process != os.getpid():
                return compiled(*args, **kwargs)
            if steps_inside:
                self.steps.before()
            MARK.stepped = False
            result = compiled(*args, **kwargs)
            if MARK.stepped:
                MARK.stepped, steps_inside = False, True
                self.anchor = self.anchor or id(watched)  # which optimizers stepped inside, nobody can see
                self._stepped(watched)
            return result

        return watched


class RangeSteps:
    """Steps are the ranges of one name: record_function's, or NVTX push/pop ones. Nested ones of that name count once."""

    def __init__(self, steps: Steps, name: str) -> None:
        self.steps = steps
        self.name = name
        self.process = os.getpid()
        self._depth = 0

    def install(self, torch: Any) -> None:
        """Wrap record_function's enter and exit, and torch.cuda.nvtx's push and pop."""
        self._wrap_record_function(torch.autograd.profiler.record_function)
        self._wrap_nvtx(torch.cuda.nvtx)

    def _enter(self) -> None:
        self._depth += 1
        if self._depth == 1 and self.process == os.getpid():
            self.steps.before()
            self.steps.begin()

    def _leave(self, *, whole: bool = True) -> None:
        self._depth -= 1
        if self._depth == 0 and whole and self.process == os.getpid():
            self.steps.end()

    def _wrap_record_function(self, kind: Any) -> None:
        enter, leave = kind.__enter__, kind.__exit__

        def __enter__(span: Any) -> Any:
            if span.name == self.name:
                self._enter()
            return enter(span)

        def __exit__(span: Any, error: Any, value: Any, trace: Any) -> Any:
            result = leave(span, error, value, trace)
            if span.name == self.name:
                self._leave(whole=error is None)
            return result

        kind.__enter__, kind.__exit__ = __enter__, __exit__

    def _wrap_nvtx(self, nvtx: Any) -> None:
        push, pop, opened = nvtx.range_push, nvtx.range_pop, []

        def range_push(message: str, *args: Any, **kwargs: Any) -> Any:
            if message == self.name:
                self._enter()
            opened.append(message)
            return push(message, *args, **kwargs)

        def range_pop() -> Any:
            result = pop()
            if opened and opened.pop() == self.name:
                self._leave()
            return result

        nvtx.range_push, nvtx.range_pop = range_push, range_pop

"""The steps of somebody's own program, marked by it with `with capture.step():`, recorded in its own process.

Same phases and same result.json as for a script (script_window): warm-up, profiled steps, one with stacks; later ones are only timed.
Nothing here may break the program: what fails is kept for the analysis to tell.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from .failures import bad_input, describe, workload_failed
from .script import ScriptRun

NESTED = "a step began inside another one: it counts as part of that"


class _Trained:
    """A model's weights in the form in which script_window asks for them: as an optimizer's."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.param_groups = [{"params": list(model.parameters())}]


class OwnSteps(ScriptRun):
    """The steps between `with` and its end. out_dir: an existing folder, which gets result.json and the recordings."""

    def __init__(self, out_dir: str, name: str, mode: str, *, device: str, warmup: int, steps: int, stacks: bool, model: Any) -> None:
        os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # its start and stop messages would stand among the program's own
        program = getattr(sys.modules.get("__main__"), "__file__", None) or sys.argv[0] or "python"
        super().__init__({
            "action": mode, "workload": {"path": program}, "device": device, "out_dir": out_dir, "warmup": warmup, "steps": steps,
            "stacks": stacks, "script": {"argv0": program, "argv": [], "steps_from": name, "run_to_end": True}})
        self.model = model
        self._open: set[int] = set()
        self.raised: Any = None
        if model is not None:
            self.window.optimizers = lambda: [_Trained(model)]

    @contextmanager
    def step(self) -> Iterator[None]:
        """One step. One that raises is not counted, and ends the capture."""
        if os.getpid() != self.process:  # a forked child's steps are its own
            yield
            return
        thread = threading.get_ident()
        if thread in self._open:
            if NESTED not in self.window.warnings:
                self.window.warnings.append(NESTED)
            yield
            return
        self._open.add(thread)
        self.window.begin()
        try:
            yield
        except BaseException as error:
            self.window.abandon()
            self.raised = self.raised or self._left(error)
            raise
        finally:
            self._open.discard(thread)
        self.window.end()

    def _left(self, error: BaseException) -> Any:
        """A step that did not come to its end; an interrupt is no fault of the step's."""
        if isinstance(error, KeyboardInterrupt):
            return describe(error, self.path)
        if isinstance(error, GeneratorExit):
            did, fix = "was left before its end", "let each step run to its end: close the generator that it stands in after it"
        elif isinstance(error, SystemExit):
            did, fix = f"ended the program (exit status {error.code!r})", "end the program outside of the steps"
        else:
            did, fix = f"raised {type(error).__name__}", "mend that step, or put what may raise outside of it"
        return workload_failed("step_raised", f"a step of the capture {did}, and that ended it after {self._seen()}", where=self.path,
                               fix=fix)

    def close(self) -> None:
        """Write result.json; with what went wrong, where something did. Raises OSError."""
        if os.getpid() != self.process:
            return
        self.window.abandon()
        if self.window.failure is not None:
            self._fail(self._in_own_words(self.window.failure))
        elif not self.window.complete:
            self._fail(self.raised or self._too_few())
        else:
            self._finish()
        self._write()

    def _too_few(self) -> Any:
        plan, seen = self.plan, self.window.count
        needed = f"{plan.warmup} warm-up and {plan.steps} profiled ones need {plan.warmup + plan.steps}"
        if not seen:
            return bad_input("no_steps_seen", f"no step was marked in the capture; {needed}", where=self.path,
                             fix="put the work of each step inside `with capture.step():`")
        return bad_input("too_few_steps", f"the capture ended after {self._seen()}; {needed}", where=self.path,
                         fix=f"run more, or ask for less: capture(warmup={min(plan.warmup, max(0, seen - 1))}, "
                             f"steps={max(1, min(plan.steps, seen - plan.warmup))})")

    def _in_own_words(self, failure: Any) -> Any:
        """A failure whose words are for a script on the command line, in those of a capture."""
        if failure.code != "no_cuda_used":
            return failure
        return bad_input(failure.code, 'device="cuda" was asked for, but the program has not used CUDA by the end of the warm-up',
                         where=self.path, fix='move its work to the GPU, give capture() more warm-up steps, or device="auto"')

    def _seen(self) -> str:
        return f"{self.window.count} step{'' if self.window.count == 1 else 's'}"

    def _facts(self, weights: list[Any]) -> dict[str, Any]:
        facts = super()._facts(weights)
        return {**facts, "training": any(weight.grad is not None for weight in weights)}

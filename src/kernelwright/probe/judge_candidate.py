"""From a candidate's file to something that can be called in the workload's place."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch

from .failures import bad_input
from .importing import import_file, seed_all
from .loaders import LoadedWorkload, build_kernelbench_model

PRECISIONS = ("equal", "tf32", "bf16")
ENTRY_POINTS = ("define class ModelNew, optimize(model, inputs) -> callable, BACKEND = \"<torch.compile backend>\", "
                "or one function that takes the workload's inputs")


@dataclass
class Candidate:
    """A built candidate."""

    entry: str
    """"ModelNew", "optimize", "BACKEND" or the function's name."""
    precision: str
    """What it declares: "equal", "tf32" or "bf16"."""
    call: Callable[..., Any]
    notes: list[str]


def build(path: str, workload: LoadedWorkload, seed: int) -> Candidate:
    """Import the file and build its entry.

    Raises ProbeFailure no_entry_point or bad_precision; the candidate's own exceptions pass through.
    """
    seed_all(seed)
    module = import_file(path)
    share_kernels(module)
    precision = getattr(module, "PRECISION", "equal")
    if precision not in PRECISIONS:
        raise bad_input("bad_precision", f"PRECISION = {precision!r} is not one of {', '.join(PRECISIONS)}", where=path,
                        fix="declare the precision that the candidate computes in, or leave PRECISION out")
    seed_all(seed)
    entry, call, notes = _entry(module, workload, seed, path)
    if not callable(call):
        raise bad_input("no_entry_point", f"{entry} gave a {type(call).__name__}, which cannot be called", where=path,
                        fix="return a callable")
    return Candidate(entry, str(precision), call, notes)


def share_kernels(module: ModuleType) -> None:
    """Lets Triton find this module's kernels compiled where another candidate has them too, on other lines of its file.

    Triton keeps what it compiled under a kernel's source and the line on which that begins (triton/runtime/jit.py, JITCallable.cache_key):
    each candidate, and optimized.py at the end, would compile the same kernels anew. In 101 recorded searches on GPUs that kept such ones
    its set-up took 1.7 s longer in the median, 11 s at most; in 50 without them none. Here all begin on line 1; only lines of debug
    information follow from it.
    """
    kind = getattr(sys.modules.get("triton.runtime.jit"), "JITFunction", None)
    if not isinstance(kind, type):
        return
    for value in list(vars(module).values()):
        if isinstance(value, kind) and getattr(value, "hash", "") is None:  # else its key is told already
            value.starting_line_number = 1  # type: ignore[attr-defined]


def _entry(module: ModuleType, workload: LoadedWorkload, seed: int, path: str) -> tuple[str, Any, list[str]]:
    if isinstance(getattr(module, "ModelNew", None), type):
        call, notes = _model_new(module, workload, seed)
        return "ModelNew", call, notes
    if callable(getattr(module, "optimize", None)) and workload.version != "optimize":
        return "optimize", module.optimize(workload.model, workload.raw_input), []
    backend = getattr(module, "BACKEND", None)
    if isinstance(backend, str):
        return "BACKEND", torch.compile(workload.model, backend=backend), []
    name = _function_name(module, workload)
    if name is None:
        raise bad_input("no_entry_point", "the candidate has no entry point that kernelwright knows", where=path, fix=ENTRY_POINTS)
    return name, getattr(module, name), []


def _function_name(module: ModuleType, workload: LoadedWorkload) -> str | None:
    """A function named like the version, `candidate`, or the only public function that the file itself defines.

    A version that the candidate merely imports from the workload (to build on it) is not its entry.
    """
    for name in (workload.version, "candidate"):
        found = getattr(module, name, None) if name else None
        if callable(found) and getattr(found, "__module__", None) != workload.module.__name__:
            return name
    own = [name for name, value in vars(module).items()
           if not name.startswith("_") and inspect.isfunction(value) and value.__module__ == module.__name__]
    return own[0] if len(own) == 1 else None


def _model_new(module: ModuleType, workload: LoadedWorkload, seed: int) -> tuple[Any, list[str]]:
    """ModelNew with the workload's own init inputs, then the reference's weights where the names match, else the seed's."""
    source = workload.module if hasattr(workload.module, "get_init_inputs") else module
    model = build_kernelbench_model(source, module.ModelNew, workload.params, workload.device, seed)
    reference = workload.model
    if not isinstance(model, torch.nn.Module) or not isinstance(reference, torch.nn.Module):
        return model, []
    model.train(reference.training)
    theirs, ours = reference.state_dict(), model.state_dict()
    same = theirs.keys() == ours.keys() and all(theirs[name].shape == ours[name].shape for name in theirs)
    if same:
        model.load_state_dict(theirs, strict=True)
        return model, []
    return model, ["ModelNew's parameters have other names or shapes than Model's: its weights come from the same seed"]

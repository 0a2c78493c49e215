"""Do calls run the workload's own forward? On what, and under which settings: where two processes say the same, they do the same work."""

from __future__ import annotations

import hashlib
import inspect
import sys
from types import CodeType, FrameType
from typing import Any

import torch

from . import tree
from .judge_program import Timer, unwrap
from .rewrites.float32_flags import float32_flags


def told(timer: Timer) -> dict[str, Any]:
    """One pass over the ring: {"forwards": how often the workload's own forward ran in it, "digest": of what it met each time}.

    0 where the program does not run it in Python, in this thread: code of its own, a compiled one, a replayed graph.
    """
    code, met = own_code(timer.program.workload.model), list[str]()

    def watch(frame: FrameType, event: str, _arg: Any) -> None:
        if event == "call" and frame.f_code is code:
            met.append(_described(dict(frame.f_locals)))

    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        timer.lead_in()
    finally:
        sys.setprofile(before)
    return {"forwards": len(met), "digest": hashlib.sha256("\n".join(met).encode()).hexdigest()}


def own_code(model: Any) -> CodeType | None:
    """The code of the module class's forward, or of the function, under its decorators."""
    model = unwrap(model)
    found = getattr(inspect.unwrap(type(model).forward if isinstance(model, torch.nn.Module) else model), "__code__", None)
    return found if isinstance(found, CodeType) else None


def _described(given: dict[str, Any]) -> str:
    """What can change a call's time though code and operators stay: settings, how arguments and weights lie, what a module was given."""
    modules = [f"{name}.{inner}: {_module(module)}" for name, value in given.items() if isinstance(value, torch.nn.Module)
               for inner, module in value.named_modules()]
    weights = [f"{name}.{inner}: {_lies(tensor)}" for name, value in given.items() if isinstance(value, torch.nn.Module)
               for inner, tensor in [*value.named_parameters(), *value.named_buffers()]]
    arguments = [f"{path}: {_lies(tensor)}" for path, tensor in tree.leaves(given)]
    return repr([_settings(), modules, weights, arguments])


def _module(module: torch.nn.Module) -> str:
    hooks = len(module._forward_hooks) + len(module._forward_pre_hooks)
    return f"{type(module).__module__}.{type(module).__qualname__} {module.training} {'forward' in vars(module)} {hooks}"


def _lies(tensor: torch.Tensor) -> str:
    strides = tensor.stride() if tensor.layout == torch.strided else tensor.layout
    return f"{type(tensor).__name__} {tuple(tensor.shape)} {strides} {tensor.dtype} {tensor.device} {tensor.requires_grad} " \
           f"{tensor.is_inference()}"


def _settings() -> tuple[Any, ...]:
    flushed = float(torch.tensor(2.0**-140) * 1.0) == 0.0  # torch.set_flush_denormal can be set, not asked for
    return (torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.get_num_threads(), float32_flags(),
            torch.backends.cudnn.enabled, torch.backends.cudnn.benchmark, torch.is_autocast_enabled(),
            torch.are_deterministic_algorithms_enabled(), torch.is_anomaly_enabled(), flushed)

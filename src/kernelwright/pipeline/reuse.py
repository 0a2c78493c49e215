"""Whether a stored profile is the one that a point of a sweep would measure now; what can't be told is not reused."""

from __future__ import annotations

import ast
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ..capture.gpus import NoGpu, first_visible, nvml
from ..capture.interpreter import gpu_visible
from ..model.errors import BadInput
from ..model.profile import Profile
from ..model.workload import Device, WorkloadRef
from ..project.fingerprint import parsed
from .stored import read_params, runs_of_text

_GENERATORS = ("get_inputs", "get_model_and_input")
_TRUE, _FALSE = ("true", "1", "yes", "on"), ("false", "0", "no", "off")


@dataclass(frozen=True)
class Present:
    """What a run started now would use."""

    device: Literal["cuda", "cpu"]
    device_name: str | None
    """None where it can't be told without CUDA."""
    clocks: str = "none"
    """What is asked of the clocks: none, lock or a number of MHz."""


def present(device: Device, clocks: str = "none") -> Present:
    """The device that `device` means on this machine now."""
    kind: Literal["cuda", "cpu"] = device if device != "auto" else "cuda" if gpu_visible() else "cpu"
    if kind == "cpu":
        return Present(kind, _cpu_name(), clocks)
    try:
        with nvml() as binding:
            return Present(kind, first_visible(binding).name, clocks)
    except NoGpu:
        return Present(kind, None, clocks)


def reusable(workload: WorkloadRef, mode: str, now: Present) -> tuple[Profile, Path] | None:
    """The newest stored profile of this version's present text with all of these parameters (those not given at the file's defaults), made
    as a sweep measures (eager, L2 not flushed, clocks as asked) on the present device, and its folder; None where there is none."""
    wanted = expected_parameters(workload)
    if wanted is None or now.device_name is None:
        return None
    for run in runs_of_text(workload, mode):
        try:
            params = read_params(run)
            if _same_settings(params, wanted, now):
                stored = Profile.load(run)
                if "dtype" not in wanted or str(wanted["dtype"]) == stored.capture_metadata.dtype:
                    return stored, run
        except BadInput:
            continue
    return None


def _same_settings(params: Mapping[str, Any], wanted: Mapping[str, Any], now: Present) -> bool:
    device, options, clocks = params.get("device"), params.get("options"), params.get("clocks")
    if not (isinstance(device, dict) and isinstance(options, dict) and isinstance(clocks, dict)):
        return False
    return (params.get("parameters") == wanted and options.get("flush_l2") is False and options.get("compile_mode") == "eager"
            and (device.get("device"), device.get("device_name")) == (now.device, now.device_name)
            and clocks.get("requested") == now.clocks)


def expected_parameters(workload: WorkloadRef) -> dict[str, Any] | None:
    """Every parameter as a profile made now would record it: the given texts over the defaults of PARAMS, else of the generator's
    signature. None where that can't be read off the file's text."""
    tree = parsed(workload.path)
    defaults = _defaults(tree) if tree is not None else None
    if defaults is None or not set(workload.params) <= set(defaults):
        return None
    try:
        return {name: _as_recorded(workload.params.get(name), default) for name, default in defaults.items()}
    except (ValueError, SyntaxError, TypeError, RecursionError):
        return None


def _defaults(tree: ast.Module) -> dict[str, ast.expr] | None:
    """name -> expression; None where PARAMS is made in another way than one literal dict."""
    touching = [node for node in tree.body for one in ast.walk(node)
                if isinstance(one, ast.Name) and one.id == "PARAMS" and not isinstance(node, (ast.FunctionDef, ast.ClassDef))]
    if touching:
        node = touching[0]
        value = node.value if len(touching) == 1 and isinstance(node, (ast.Assign, ast.AnnAssign)) else None
        if not isinstance(value, ast.Dict) or not all(isinstance(key, ast.Constant) and isinstance(key.value, str) for key in value.keys):
            return None
        return {str(key.value): default for key, default in zip(value.keys, value.values, strict=True) if isinstance(key, ast.Constant)}
    if any(isinstance(node, (ast.Import, ast.ImportFrom)) and any(alias.name in ("*", "PARAMS", *_GENERATORS) for alias in node.names)
           for node in tree.body):
        return None
    function = next((node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name in _GENERATORS), None)
    if function is None:
        return None
    takes = function.args
    named = [*takes.posonlyargs, *takes.args]
    positional = zip(named[len(named) - len(takes.defaults):], takes.defaults, strict=True)
    pairs = [*positional, *zip(takes.kwonlyargs, takes.kw_defaults, strict=True)]
    return {own.arg: default for own, default in pairs if default is not None and own.arg != "device"}


def _as_recorded(text: str | None, default: ast.expr) -> Any:
    """What params.json would say. Raises ValueError, SyntaxError or TypeError where that can't be told."""
    if isinstance(default, ast.Attribute) and isinstance(default.value, ast.Name) and default.value.id == "torch":
        return (text if text is not None else default.attr).removeprefix("torch.")
    value = ast.literal_eval(default)
    if not isinstance(value, (bool, int, float, str)):
        raise ValueError("no plain default")
    if text is None:
        return value
    if isinstance(value, bool):
        if text.lower() not in _TRUE + _FALSE:
            raise ValueError(text)
        return text.lower() in _TRUE
    return type(value)(text)


def _cpu_name() -> str:
    """As the probe names it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            named = next((line.split(":", 1)[1].strip() for line in file if line.lower().startswith("model name")), None)
    except OSError:
        named = None
    return named or platform.processor() or platform.machine() or "CPU"

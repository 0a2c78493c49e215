"""A workload's parameters: found in PARAMS or a signature, overridden from the command line's text."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import torch

from .failures import bad_input

_TRUE = ("true", "1", "yes", "on")
_FALSE = ("false", "0", "no", "off")


def of_module(module: ModuleType, path: str) -> dict[str, Any] | None:
    """A copy of the module-level PARAMS; None when there is none. Raises bad_params when it is no dict of names."""
    declared = getattr(module, "PARAMS", None)
    if declared is None:
        return None
    if not isinstance(declared, Mapping) or not all(isinstance(name, str) and name.isidentifier() for name in declared):
        raise bad_input("bad_params", f"PARAMS must be a dict of parameter names to defaults, not {type(declared).__name__}", where=path,
                        fix="PARAMS = {\"b\": 32, \"dtype\": \"bfloat16\"}")
    return dict(declared)


def of_signature(function: Callable[..., Any], path: str) -> dict[str, Any]:
    """Keyword parameters with defaults, in order, without `device`. Raises bad_signature when one has no default."""
    found: dict[str, Any] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if name == "device" or parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if parameter.default is parameter.empty:
            raise bad_input("bad_signature", f"{_name(function)}() needs the argument {name!r}, which has no default", where=path,
                            fix="give it a default, or list it in PARAMS")
        found[name] = parameter.default
    return found


def override(defaults: dict[str, Any], given: Mapping[str, str], path: str) -> dict[str, Any]:
    """`defaults` with the given texts coerced to each default's type, in the defaults' order.

    Raises unknown_parameter (naming the known ones) and bad_parameter.
    """
    unknown = [name for name in given if name not in defaults]
    if unknown:
        known = ", ".join(defaults) if defaults else "none: this workload has no parameters"
        raise bad_input("unknown_parameter", f"unknown parameter {', '.join(repr(name) for name in unknown)}", where=path,
                        fix=f"known parameters: {known}")
    return {name: coerce(name, given[name], default, path) if name in given else default for name, default in defaults.items()}


def coerce(name: str, text: str, default: Any, path: str) -> Any:
    """`text` as the type of `default`. Raises bad_parameter."""
    try:
        return _coerce(text, default)
    except (ValueError, SyntaxError, AttributeError, TypeError) as error:
        wanted = "a torch dtype, e.g. bfloat16" if isinstance(default, torch.dtype) else type(default).__name__
        raise bad_input("bad_parameter", f"parameter {name!r} must be {wanted}, not {text!r}", where=path,
                        fix=f"default: {name}={plain(default)}") from error


def _coerce(text: str, default: Any) -> Any:
    if isinstance(default, bool):
        if text.lower() not in _TRUE + _FALSE:
            raise ValueError(text)
        return text.lower() in _TRUE
    if isinstance(default, (int, float, str)):
        return type(default)(text)
    if isinstance(default, torch.dtype):
        dtype = getattr(torch, text.removeprefix("torch."))
        if not isinstance(dtype, torch.dtype):
            raise ValueError(text)
        return dtype
    value = _guess(text)
    if default is not None and not isinstance(value, type(default)):
        raise ValueError(text)
    return value


def _guess(text: str) -> Any:
    """The literal that `text` spells, else the text itself. For defaults of None, lists and tuples."""
    special = {"none": None, "true": True, "false": False}
    if text.lower() in special:
        return special[text.lower()]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def plain(value: Any) -> int | float | bool | str | None:
    """A value as result.json holds it: numbers, truth values, text; dtypes by their short name."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, torch.dtype):
        return str(value).removeprefix("torch.")
    return str(value)


def accepted(function: Callable[..., Any], values: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Those of `values` (and `device`) that the function's signature takes. Functions without a signature get none."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return {}
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    chosen = {name: value for name, value in values.items() if takes_any or name in parameters}
    if "device" in parameters:
        chosen["device"] = device
    return chosen


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", type(function).__name__)

"""Loads a workload of forms 1 to 3 (get_model_and_input; KernelBench's; versions) and calls it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch

from . import params as parameters
from . import tree, versions
from .environment import resolve_device
from .failures import ProbeFailure, bad_input
from .importing import import_file, seed_all
from .training import find_loss, may_train, training_step

__all__ = ["Inputs", "LoadedWorkload", "build_kernelbench_model", "find_form", "find_loss", "import_file", "load", "load_named",
           "own_number", "place", "seed_all", "split_inputs"]

Call = Callable[[], Any]
Inputs = tuple[tuple[Any, ...], dict[str, Any]]

ENTRY_POINTS = ("define get_model_and_input() -> (model, input); or Model, get_inputs() and get_init_inputs(); "
                "or VERSIONS = {\"v1\": function} and get_inputs()")

OWN_NUMBERS = ("flops", "bytes_moved")
"""Functions of a file with get_inputs() that say what one call must do at least."""


@dataclass
class LoadedWorkload:
    """A workload on its device, ready to be called. One call is `model(*args, **kwargs)`, or a whole training step."""

    path: str
    form: str
    """"model", "kernelbench" or "versions"."""
    version: str | None
    versions: tuple[str, ...]
    params: dict[str, Any]
    """Parameter values with the types of their defaults, in the workload's order."""
    module: ModuleType
    model: Callable[..., Any]
    """The module, or the chosen version's function."""
    raw_input: Any
    """The inputs in the structure that the workload returned, on the device."""
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    device: str
    """"cuda" or "cpu"."""
    training: bool = False
    """One call is zero_grad, forward, backward."""
    changed_buffers: tuple[str, ...] = ()
    """Under the judge: those that a call which is no training step was seen to change. They are compared as outputs are."""

    def caller(self, fn: Callable[..., Any] | None = None, args: tuple[Any, ...] | None = None,
               kwargs: dict[str, Any] | None = None) -> Call:
        """One call as a function without arguments. fn replaces the model, args and kwargs (together) the inputs."""
        target = self.model if fn is None else fn
        arguments = self.args if args is None else args
        keywords = (self.kwargs if args is None else {}) if kwargs is None else kwargs
        if self.training:
            return training_step(target, self.model, arguments, keywords)

        def call() -> Any:
            return target(*arguments, **keywords)

        return call

    def step(self, fn: Callable[..., Any] | None = None, args: tuple[Any, ...] | None = None,
             kwargs: dict[str, Any] | None = None) -> Any:
        """One call; returns its output. A training step leaves the gradients in the parameters."""
        return self.caller(fn, args, kwargs)()

    def fresh_inputs(self, seed: int) -> Inputs:
        """(args, kwargs) from the workload's own generator under another seed, on the device."""
        return split_inputs(self.fresh_raw_input(seed))

    def fresh_raw_input(self, seed: int) -> Any:
        """As `fresh_inputs`, in the structure that the workload returns."""
        return tree.to_device(self.generated(seed), self.device)

    def generated(self, seed: int) -> Any:
        """What the workload's own generator returns as input under this seed, wherever it lies."""
        if self.form == "model":
            return _model_and_input(self.module, self.params, self.device, seed, self.path)[1]
        return _generate_inputs(self.module, self.params, self.device, seed)

    def flops(self) -> float | None:
        """The workload's own flops(**params); None when it has none. Raises bad_flops (`own_number`)."""
        return self._own_number("flops")

    def bytes_moved(self) -> float | None:
        """The workload's own bytes_moved(**params) in bytes; None when it has none. Raises bad_bytes_moved."""
        return self._own_number("bytes_moved")

    @property
    def reference(self) -> Callable[..., Any] | None:
        """The workload's own reference(...), which takes the inputs of one call; None when it has none."""
        found = getattr(self.module, "reference", None)
        return found if callable(found) else None

    def _own_number(self, name: str) -> float | None:
        return own_number(self.module, name, self.params, self.device, self.path) if self.form == "versions" else None


def own_number(module: ModuleType, name: str, values: Mapping[str, Any], device: str, path: str) -> float | None:
    """What the file's function `name` (one of OWN_NUMBERS) says of these parameters; None when it has none. 0 is a number: a transpose
    has no FLOPs. Raises bad_<name> for anything that is negative, not finite or no number."""
    function = getattr(module, name, None)
    if not callable(function):
        return None
    value = function(**parameters.accepted(function, values, device))
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= sys.float_info.max:
        raise bad_input(f"bad_{name}", f"{name}() must return a number that is 0 or more, not {_short(value)}", where=path,
                        fix="return a number, or leave the function out where it is not known")
    return float(value)


def load_named(named: Mapping[str, Any], device: str, seed: int = 0) -> LoadedWorkload:
    """As `load`, of what the parent asks for (model/capture.py: ProbeWorkload)."""
    sys.path += [folder for folder in named.get("import_from") or () if folder not in sys.path]
    path, version, params = named["path"], named.get("version"), named.get("params") or {}
    if not named.get("source"):
        return load(path, version, params, device, seed)
    if named.get("function"):
        return load(path, version, params, device, seed, function=(named["source"], named["function"]))
    workload = load(path, None, params, device, seed)
    workload.version, workload.versions = version, ()
    return workload


def load(path: str, version: str | None = None, params: Mapping[str, str] | None = None, device: str = "auto",
         seed: int = 0, *, function: tuple[str, str] | None = None) -> LoadedWorkload:
    """Import the workload, make its model and inputs under `seed`, and move them to the device.

    params: text by name, as typed. function: (file, name) of what is called with the workload's inputs; version is then a name alone.
    Raises ProbeFailure for what the user must mend; the workload's own exceptions pass through.
    """
    path = os.path.abspath(path)
    chosen_device = resolve_device(device)
    for file in (path, *(function[:1] if function is not None else ())):
        if not os.path.isfile(file):
            raise bad_input("no_such_file", "there is no such file", where=file, fix="check the path")
    seed_all(seed)
    module = import_file(path)
    seed_all(seed)
    if function is not None:
        workload = _load_function(module, path, version, dict(params or {}), chosen_device, seed, function)
    else:
        workload = _load_form(module, path, version, dict(params or {}), chosen_device, seed)
    if may_train(workload.model, (workload.args, workload.kwargs)):
        workload.training = find_loss(workload.step()) is not None
    return workload


def _load_form(module: ModuleType, path: str, version: str | None, given: dict[str, str], device: str, seed: int) -> LoadedWorkload:
    form = find_form(module, path)
    if version is not None and form != "versions":
        raise bad_input("no_versions", f"version {version!r} asked for, but the file has no VERSIONS", where=path,
                        fix="leave the version out")
    if form == "versions":
        return _load_versions(module, path, version, given, device, seed)
    build = _load_model_form if form == "model" else _load_kernelbench
    return build(module, path, given, device, seed)


def _load_function(module: ModuleType, path: str, version: str | None, given: dict[str, str], device: str, seed: int,
                   function: tuple[str, str]) -> LoadedWorkload:
    """A function (or nn.Module class) of one file, called with the inputs of another or of the same."""
    makes_inputs = callable(getattr(module, "get_inputs", None))
    if not makes_inputs and not callable(getattr(module, "get_model_and_input", None)):
        raise bad_input("no_entry_point", "the file has neither get_inputs() nor get_model_and_input(), so there is nothing to call "
                        f"{function[1]} with", where=path, fix="define get_inputs(), or name such a file with `file:` in kernelwright.yaml")
    values = _parameter_values(module, None if makes_inputs else module.get_model_and_input, given, path)
    if makes_inputs:
        _check_own_numbers(module, values, device, path)
    target = versions.find(*function)
    if isinstance(target, type):
        target = build_kernelbench_model(module, target, values, device, seed)
    raw = _generate_inputs(module, values, device, seed) if makes_inputs else _model_and_input(module, values, device, seed, path)[1]
    return _loaded(path, "versions" if makes_inputs else "model", version, (), values, module, target, raw, device)


def find_form(module: ModuleType, path: str) -> str:
    """"versions", "model" or "kernelbench". Raises no_entry_point, saying what is missing."""
    has = {name: getattr(module, name, None) is not None for name in ("VERSIONS", "get_model_and_input", "Model", "get_inputs")}
    if has["VERSIONS"] and has["get_inputs"]:
        return "versions"
    if has["get_model_and_input"]:
        return "model"
    if has["Model"] and has["get_inputs"]:
        return "kernelbench"
    if has["VERSIONS"] or has["Model"]:
        found = "VERSIONS" if has["VERSIONS"] else "Model"
        raise bad_input("no_entry_point", f"the file has {found} but no get_inputs()", where=path, fix="define get_inputs()")
    raise bad_input("no_entry_point", "the file has no entry point that kernelwright knows", where=path, fix=ENTRY_POINTS)


def _load_model_form(module: ModuleType, path: str, given: dict[str, str], device: str, seed: int) -> LoadedWorkload:
    values = _parameter_values(module, module.get_model_and_input, given, path)
    model, raw = _model_and_input(module, values, device, seed, path)
    return _loaded(path, "model", None, (), values, module, model, raw, device)


def _load_kernelbench(module: ModuleType, path: str, given: dict[str, str], device: str, seed: int) -> LoadedWorkload:
    values = _parameter_values(module, None, given, path)
    model = build_kernelbench_model(module, module.Model, values, device, seed)
    return _loaded(path, "kernelbench", None, (), values, module, model, _generate_inputs(module, values, device, seed), device)


def _load_versions(module: ModuleType, path: str, version: str | None, given: dict[str, str], device: str, seed: int) -> LoadedWorkload:
    values = _parameter_values(module, None, given, path)
    _check_own_numbers(module, values, device, path)
    table = module.VERSIONS
    if callable(table) and not isinstance(table, Mapping):
        table = table(**parameters.accepted(table, values, device))
    if not isinstance(table, Mapping) or not table:
        raise bad_input("bad_versions", "VERSIONS must be a non-empty dict of version names to callables", where=path,
                        fix="VERSIONS = {\"v1\": function}")
    names = tuple(str(name) for name in table)
    chosen = names[-1] if version is None else version
    if chosen not in names:
        raise bad_input("unknown_version", f"unknown version {chosen!r}", where=path, fix=f"known versions: {', '.join(names)}")
    model = list(table.values())[names.index(chosen)]
    return _loaded(path, "versions", chosen, names, values, module, model, _generate_inputs(module, values, device, seed), device)


def _loaded(path: str, form: str, version: str | None, versions: tuple[str, ...], values: dict[str, Any], module: ModuleType,
            model: Any, raw: Any, device: str) -> LoadedWorkload:
    if not callable(model):
        what = f"version {version!r}" if version else "the model"
        raise bad_input("not_callable", f"{what} is a {type(model).__name__}, which cannot be called", where=path,
                        fix="hand over a torch.nn.Module or a function")
    raw = tree.to_device(raw, device)
    args, kwargs = split_inputs(raw)
    return LoadedWorkload(path=path, form=form, version=version, versions=versions, params=values, module=module,
                          model=place(model, device), raw_input=raw, args=args, kwargs=kwargs, device=device)


def build_kernelbench_model(module: ModuleType, model_class: Callable[..., Any], values: Mapping[str, Any], device: str, seed: int) -> Any:
    """`model_class(*get_init_inputs())` on the device, its weights drawn under `seed` (so Model and ModelNew get equal ones)."""
    get_init_inputs = getattr(module, "get_init_inputs", None)
    seed_all(seed)
    initial = get_init_inputs(**parameters.accepted(get_init_inputs, values, device)) if get_init_inputs else []
    seed_all(seed)
    model = model_class(**initial) if isinstance(initial, Mapping) else model_class(*initial)
    return place(model, device)


def place(model: Any, device: str) -> Any:
    """A module moved to the device when any of its parameters or buffers lie elsewhere; other callables as they are."""
    if not isinstance(model, torch.nn.Module):
        return model
    elsewhere = any(tensor.device.type != device for tensor in [*model.parameters(), *model.buffers()])
    return model.to(device) if elsewhere else model


def split_inputs(raw: Any) -> Inputs:
    """(args, kwargs) of one call: a mapping becomes keywords, a tuple or list arguments, anything else one argument."""
    if isinstance(raw, Mapping):
        return (), {str(name): value for name, value in raw.items()}
    if type(raw) in (tuple, list):
        return tuple(raw), {}
    return (raw,), {}


def _parameter_values(module: ModuleType, generator: Callable[..., Any] | None, given: dict[str, str], path: str) -> dict[str, Any]:
    """PARAMS, else the generator's own keyword parameters, with the given texts; PARAMS itself follows the overrides."""
    declared = parameters.of_module(module, path)
    defaults = declared if declared is not None else (parameters.of_signature(generator, path) if generator else {})
    values = parameters.override(defaults, given, path)
    if declared is not None and isinstance(module.PARAMS, dict):
        module.PARAMS.update(values)
    return values


def _check_own_numbers(module: ModuleType, values: Mapping[str, Any], device: str, path: str) -> None:
    """Raises what `own_number` raises, before minutes go into building and timing. A function that fails otherwise costs its figure
    alone: it is asked again when work is counted, and that is a warning."""
    for name in OWN_NUMBERS:
        try:
            own_number(module, name, values, device, path)
        except ProbeFailure:
            raise
        except Exception:  # noqa: BLE001 - the workload's own code
            continue


def _short(value: Any) -> str:
    """A value for a message, in one short line."""
    try:
        text = " ".join(repr(value).split())
    except Exception:  # noqa: BLE001 - the workload's own class
        return f"a {type(value).__name__}"
    return text if len(text) <= 60 else f"a {type(value).__name__}"


def _model_and_input(module: ModuleType, values: Mapping[str, Any], device: str, seed: int, path: str) -> tuple[Any, Any]:
    seed_all(seed)
    function = module.get_model_and_input
    pair = function(**parameters.accepted(function, values, device))
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise bad_input("bad_return", f"get_model_and_input() must return (model, input), not {type(pair).__name__}", where=path,
                        fix="several inputs go into one tuple or dict: return model, (x, mask)")
    return pair[0], pair[1]


def _generate_inputs(module: ModuleType, values: Mapping[str, Any], device: str, seed: int) -> Any:
    seed_all(seed)
    return module.get_inputs(**parameters.accepted(module.get_inputs, values, device))

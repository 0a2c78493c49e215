"""The workload's own Triton kernels: JITFunction, Autotuner and CompiledKernel objects of triton 2.x and 3.x.

Shapes of these objects: python/triton/runtime/jit.py, runtime/autotuner.py and compiler/compiler.py of triton-lang/triton.
"""

from __future__ import annotations

import math
import os
from typing import Any

KINDS = ("ttir", "ttgir", "llir", "ptx", "cubin", "amdgcn", "hsaco")
MAX_VARIANTS = 16
"""Specialisations of one kernel whose code is kept: those of the chosen configurations come first."""
MAX_TIMINGS = 500
MAX_KEYS = 32
NS_PER_MS = 1e6


def chain(tuner: Any) -> list[Any]:
    """What a tuner wraps, outermost first, down to the JITFunction: Autotuner -> Heuristics -> JITFunction."""
    inside: list[Any] = []
    item = getattr(tuner, "fn", None)
    while item is not None and not hasattr(item, "__code__") and len(inside) < 10:
        inside.append(item)
        item = getattr(item, "fn", None)
    return inside or [tuner]


def python_function(item: Any) -> Any:
    """The Python function under any number of decorators; None when it was dropped (Inductor does that before pickling)."""
    for _ in range(10):
        if hasattr(item, "__code__"):
            return item
        item = getattr(item, "fn", None)
    return None


def name_of(item: Any) -> str:
    """Python name of a kernel object; "" when unknown."""
    for owner in (python_function(item), *reversed(chain(item))):
        name = getattr(owner, "__name__", None)
        if isinstance(name, str):
            return name
    return ""


def has_run(function: Any) -> bool:
    """True when a compiled form of this JITFunction was loaded onto a device, which happens at its first launch."""
    return bool(_loaded(function))


def kernel(function: Any, tuner: Any, store: Any) -> dict[str, Any]:
    """Index entry of one JITFunction that ran. tuner: the Autotuner around it, or None. store: writes files."""
    python = python_function(function)
    tunings = _tunings(tuner) if tuner is not None else []
    compiled = _loaded(function)
    best = [entry["best"] for entry in tunings]
    # Of an autotuned kernel every candidate was loaded; those that were only tried keep no code.
    kept = [item for item in compiled if any(_matches(item, config) for config in best)] or compiled
    if len(kept) > MAX_VARIANTS:
        store.left_out.append(f"{len(kept) - MAX_VARIANTS} specialisations of {name_of(function)} beyond the first {MAX_VARIANTS}")
    variants = [variant(item, _config_of(item, best), store) for item in kept[:MAX_VARIANTS]]
    source = store.add(_text(function), "py", name_of(function)) if _text(function) else None
    return {
        "name": str(getattr(compiled[0].metadata, "name", "") or name_of(function))[:500], "python_name": name_of(function)[:500],
        "source": place(python), "origin": "triton", "configs_tried": _tried(tuner, tunings), "variants": variants,
        "tunings": tunings, "source_file": source,
    }


def place(python: Any) -> str | None:
    """"file.py:12" of a function's first line (its decorators included, as Python counts), None when unknown."""
    code = getattr(python, "__code__", None)
    return f"{os.path.basename(code.co_filename)}:{code.co_firstlineno}"[:500] if code is not None else None


def variant(compiled: Any, config: dict[str, Any], store: Any, code: dict[str, Any] | None = None) -> dict[str, Any]:
    """One compiled form: its configuration, resources and files. code: kind -> content where the object no longer holds it."""
    metadata = getattr(compiled, "metadata", None)
    asm = getattr(compiled, "asm", None)
    contents = code if code is not None else {kind: asm[kind] for kind in KINDS if isinstance(asm, dict) and kind in asm}
    name = str(getattr(metadata, "name", "") or getattr(compiled, "name", ""))
    files = [store.add(content, kind, name) for kind, content in contents.items()]
    return {
        "config": config, "num_warps": _whole(_first("num_warps", metadata, compiled)),
        "num_stages": _whole(_first("num_stages", metadata, compiled)), "registers": _whole(getattr(compiled, "n_regs", None)),
        "spills": _whole(getattr(compiled, "n_spills", None)), "shared_bytes": _whole(_first("shared", metadata, compiled)),
        "files": [file for file in files if file is not None],
    }


def config_values(config: Any) -> dict[str, Any]:
    """A triton.Config's own parameters, then num_warps and num_stages (and what else differs from the default)."""
    values = {str(name)[:100]: plain(value) for name, value in dict(getattr(config, "kwargs", {})).items()}
    for name in ("num_warps", "num_stages", "num_ctas", "maxnreg"):
        value = getattr(config, name, None)
        if value is not None and not (name == "num_ctas" and value == 1):
            values[name] = plain(value)
    return values


def plain(value: Any) -> Any:
    """A JSON value of at most 200 characters; constexpr wrappers are taken off."""
    value = getattr(value, "value", value) if type(value).__name__ == "constexpr" else value
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return str(value)[:200]


def time_ns(timing: Any) -> float | None:
    """Triton's milliseconds (a number, or [median, 20%, 80%]) in ns; None for a configuration that failed (inf)."""
    value = timing[0] if isinstance(timing, (list, tuple)) and timing else timing
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value < 0:
        return None
    return float(value) * NS_PER_MS


def _loaded(function: Any) -> list[Any]:
    """CompiledKernel objects of a JITFunction that were loaded, in the order of their compilation."""
    caches = vars(function).get("device_caches") or vars(function).get("cache") or {}
    if not isinstance(caches, dict):
        return []
    # triton >= 3.2: device -> (kernel cache, ...); before: device -> kernel cache. Reading must not create entries: defaultdict.
    per_device = [cache[0] if isinstance(cache, tuple) and cache else cache for cache in list(caches.values())]
    kernels = [item for cache in per_device if isinstance(cache, dict) for item in list(cache.values())]
    return [item for item in kernels if hasattr(item, "asm") and getattr(item, "module", None) is not None]


def _tunings(tuner: Any) -> list[dict[str, Any]]:
    """One entry a tuning key, newest last."""
    cache = getattr(tuner, "cache", None)
    decided = list(cache.items())[-MAX_KEYS:] if isinstance(cache, dict) else []
    if not decided:
        chosen = getattr(tuner, "best_config", None)
        return [] if chosen is None else [
            {"key": "", "best": config_values(chosen), "timings": [], "note": "one configuration only: nothing was timed"}]
    timings = getattr(tuner, "configs_timings", None)
    entries = []
    for at, (key, best) in enumerate(decided):
        table, note = [], "Triton keeps the timings of the last tuned key only"
        if at == len(decided) - 1:
            table = _table(timings, best)
            note = "" if table else "no timings: the result came from a cache, or there was one configuration to try"
        entries.append({"key": str(key)[:500], "best": config_values(best), "timings": table, "note": note})
    return entries


def _table(timings: Any, best: Any) -> list[dict[str, Any]]:
    """Fastest first, failures last; [] where the fastest isn't the chosen one (then the table is another key's)."""
    if not isinstance(timings, dict) or not timings:
        return []
    rows = [{"config": config_values(config), "time_ns": time_ns(timing)} for config, timing in list(timings.items())[:MAX_TIMINGS]]
    rows.sort(key=lambda row: (row["time_ns"] is None, row["time_ns"] or 0.0))
    return rows if any(row["config"] == config_values(best) and row["time_ns"] == rows[0]["time_ns"] for row in rows) else []


def _tried(tuner: Any, tunings: list[dict[str, Any]]) -> int | None:
    if tuner is None:
        return None
    timed = [len(entry["timings"]) for entry in tunings if entry["timings"]]
    return timed[-1] if timed else len(getattr(tuner, "configs", None) or ()) or None


def _constants(compiled: Any) -> dict[str, Any]:
    """Values of the constexpr arguments; keys are (index,), index or name, depending on the version."""
    source = getattr(compiled, "src", None)
    constants = getattr(source, "constants", None) or {}
    names = list(getattr(getattr(source, "fn", None), "arg_names", None) or ())
    values = {}
    for key, value in constants.items() if isinstance(constants, dict) else ():
        index = key[0] if isinstance(key, tuple) and len(key) == 1 else key
        name = names[index] if isinstance(index, int) and 0 <= index < len(names) else index
        if isinstance(name, str):
            values[name] = plain(value)
    return values


def _matches(compiled: Any, config: dict[str, Any]) -> bool:
    constants, metadata = _constants(compiled), compiled.metadata
    fixed = {name: plain(getattr(metadata, name, None)) for name in ("num_warps", "num_stages", "num_ctas", "maxnreg")}
    return all(fixed[name] in (None, value) if name in fixed else constants.get(name, value) == value for name, value in config.items())


def _config_of(compiled: Any, best: list[dict[str, Any]]) -> dict[str, Any]:
    """The chosen configuration that this form belongs to, else its constexpr arguments (absent pointers left out)."""
    found = next((config for config in best if _matches(compiled, config)), None)
    return found if found is not None else {name[:100]: value for name, value in _constants(compiled).items() if value is not None}


def _text(function: Any) -> str:
    text = getattr(function, "_src", None) or getattr(function, "src", None)
    return text if isinstance(text, str) else ""


def _first(name: str, *owners: Any) -> Any:
    return next((value for owner in owners if (value := getattr(owner, name, None)) is not None), None)


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None

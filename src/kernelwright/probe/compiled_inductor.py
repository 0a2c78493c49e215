"""Inductor's kernels (CachingAutotuner), its generated output code (PyCodeCache), and the choices of max-autotune.

Shapes: torch/_inductor/runtime/triton_heuristics.py, codecache.py and select_algorithm.py of torch 2.4 to 2.13.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from . import compiled_triton
from .autotuned import Journal
from .watching import after_import

SELECTOR = "torch._inductor.select_algorithm"
MAX_CHOICES = 200
MAX_CANDIDATES = 200


def in_use(tuners: list[Any]) -> list[Any]:
    """The CachingAutotuners that a loaded graph holds: the others are candidates that max-autotune tried. All where no graph says."""
    held: set[int] = set()
    for module in _graph_modules():
        for value in list(vars(module).values()):
            held.add(id(value))
            several = getattr(value, "_kernels", None) if type(value).__name__ == "MultiKernelCall" else None
            held.update(id(one) for one in several or ())
    return [tuner for tuner in tuners if id(tuner) in held] or tuners


def kernel(tuner: Any, store: Any, own: dict[str, Any]) -> dict[str, Any] | None:
    """Index entry of one CachingAutotuner; None when it never ran: no launcher, or several not yet tuned.

    store: writes files. own: the workload's own JITFunctions by name; Inductor copies those that a compiled graph calls.
    """
    launchers = list(getattr(tuner, "launchers", None) or ())
    if len(launchers) != 1:
        return None
    meta = getattr(tuner, "inductor_meta", None) or {}
    name = compiled_triton.name_of(tuner)
    descriptive = meta.get("kernel_name") if isinstance(meta, dict) else None
    # Without unique_kernel_names all of them are called triton_ on the device.
    name = str(descriptive) if name in ("", "triton_") and descriptive else name
    config = compiled_triton.config_values(launchers[0].config)
    timings = _timings(tuner)
    function = compiled_triton.chain(tuner)[-1]
    text = getattr(function, "_src", None) or getattr(function, "src", None)
    original = own.get(name) if getattr(tuner, "custom_kernel", False) else None
    notes = "no timings: one configuration to try, or the choice came from Inductor's cache on disk"
    tried = len(timings) or len(getattr(tuner, "configs", None) or ()) or None
    return {
        "name": name[:500], "python_name": name[:500] if original is not None else None,
        "source": compiled_triton.place(compiled_triton.python_function(original)), "origin": "inductor", "configs_tried": tried,
        "variants": [_variant(tuner, launchers[0], config, store)],
        "tunings": [{"key": "", "best": config, "timings": timings, "note": "" if timings else notes}],
        "source_file": store.add(text, "py", name) if isinstance(text, str) and text else None,
    }


def _variant(tuner: Any, launcher: Any, config: dict[str, Any], store: Any) -> dict[str, Any]:
    results = [result for result in getattr(tuner, "compile_results", None) or ()
               if compiled_triton.config_values(getattr(result, "config", None)) == config]
    compiled = getattr(results[0], "kernel", None) if results else None
    code = None if isinstance(getattr(compiled, "asm", None), dict) else _code_on_disk(tuner, launcher, store)
    entry = compiled_triton.variant(compiled, config, store, code)
    entry.update(num_warps=entry["num_warps"] or config.get("num_warps"), num_stages=entry["num_stages"] or config.get("num_stages"))
    for field, attribute in (("registers", "n_regs"), ("spills", "n_spills"), ("shared_bytes", "shared")):
        value = getattr(launcher, attribute, None)
        if entry[field] is None and isinstance(value, int):
            entry[field] = value
    return entry


def _code_on_disk(tuner: Any, launcher: Any, store: Any) -> dict[str, Any]:
    """Kind -> content from Triton's cache: statically launched kernels drop their code once it is loaded."""
    key, name = getattr(launcher, "cache_hash", None), compiled_triton.name_of(tuner)
    root = os.environ.get("TRITON_CACHE_DIR") or _cache_folder(tuner)
    if not (isinstance(key, str) and root and name and os.sep not in key + name):
        return {}
    contents: dict[str, Any] = {}
    for kind in compiled_triton.KINDS:
        path = os.path.join(root, key, f"{name}.{kind}")
        if os.path.isfile(path):
            contents[kind] = _read(path, store)
    return {kind: content for kind, content in contents.items() if content is not None}


def _cache_folder(tuner: Any) -> str | None:
    """Where Inductor keeps Triton's cache: kernels out of its own cache set no TRITON_CACHE_DIR."""
    home = sys.modules.get("torch._inductor.runtime.cache_dir_utils") or sys.modules.get("torch._inductor.runtime.runtime_utils")
    find = getattr(home, "triton_cache_dir", None)
    meta = getattr(tuner, "triton_meta", None) or {}
    return str(find(meta.get("device") or 0)) if callable(find) else None


def _timings(tuner: Any) -> list[dict[str, Any]]:
    """What the tuner timed, fastest first. Its keys are the configurations as sorted (name, value) pairs."""
    cached = getattr(getattr(tuner, "coordesc_tuner", None), "cached_benchmark_results", None)
    rows = []
    for key, timing in list(cached.items())[: compiled_triton.MAX_TIMINGS] if isinstance(cached, dict) else ():
        pairs = list(key) if isinstance(key, (tuple, frozenset)) else []
        config = {str(pair[0])[:100]: compiled_triton.plain(pair[1]) for pair in pairs if isinstance(pair, tuple) and len(pair) == 2}
        rows.append({"config": config, "time_ns": compiled_triton.time_ns(timing)})
    return sorted(rows, key=lambda row: (row["time_ns"] is None, row["time_ns"] or 0.0))


def graphs(store: Any, most: int) -> list[dict[str, Any]]:
    """Output code of the graphs that this process loaded, in that order: {"name", "file"}."""
    paths = list(dict.fromkeys(path for module in _graph_modules() if (path := getattr(module, "__file__", None))))
    if len(paths) > most:
        store.left_out.append(f"{len(paths) - most} graphs beyond the first {most}")
    found = []
    for path in paths[:most]:
        content = _read(path, store)
        file = store.add(content, "py", os.path.basename(path)) if content is not None else None
        if file is not None:
            found.append({"name": os.path.basename(path)[:200], "file": file})
    return found


def _graph_modules() -> list[Any]:
    """Modules of output code: those with a call(). The others hold one kernel each."""
    cache = getattr(sys.modules.get("torch._inductor.codecache", ModuleType("absent")), "PyCodeCache", None)
    modules = getattr(cache, "modules", None) or getattr(cache, "cache", None) or []
    modules = list(modules.values()) if isinstance(modules, dict) else list(modules)
    return [module for module in modules if callable(getattr(module, "call", None))]


def _read(path: str, store: Any) -> bytes | None:
    """A file's bytes; one byte more than the cap at most, so that the store can refuse it. None when it is gone."""
    from .compiled import MAX_FILE_BYTES

    try:
        with open(path, "rb") as file:
            return file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        store.left_out.append(f"{os.path.basename(path)}: {error.strerror}")
        return None


class Choices:
    """Listens to max-autotune's choice among templates and libraries; `found` holds one entry for operators alike."""

    def __init__(self, warn: Callable[[str], None]) -> None:
        self.found: list[dict[str, Any]] = []
        self.journal: Journal | None = None
        """Told of every choice, so that a crash right after one can be told from others."""
        self._warn = warn
        self._selector: ModuleType | None = None

    def feedback(self, timings: Any, name: Any, inputs: Any, choices: Any, *_rest: Any) -> None:
        """torch's FeedbackFunction (its arguments grew over the versions). Never raises: it runs inside the compilation."""
        try:
            entry = _choice(timings, name, inputs, choices)
            if self.journal is not None:
                self.journal.note(entry["operator"], "", None)
            known = [other for other in self.found if (other["operator"], other["inputs"]) == (entry["operator"], entry["inputs"])]
            if known:
                known[0]["uses"] += 1
            elif len(self.found) < MAX_CHOICES:
                self.found.append(entry)
        except Exception as error:  # noqa: BLE001 - runs inside the user's compilation, which must not fail for it
            self._warn(f"a choice of max-autotune could not be read: {type(error).__name__}: {str(error)[:200]}")

    def install(self, selector: Any) -> None:
        """Register with torch's selector module. Never raises."""
        try:
            selector.add_feedback_saver(self.feedback)
            self._selector = selector
        except Exception as error:  # noqa: BLE001 - private API of torch: absent or changed, the workload goes on
            self._warn(f"choices of max-autotune are not recorded: {type(error).__name__}: {str(error)[:200]}")

    def remove(self) -> None:
        """Take our listener away, and nobody else's."""
        cache = getattr(self._selector, "_ALGORITHM_SELECTOR_CACHE", None)
        savers = getattr(cache, "feedback_saver_fns", None)
        if isinstance(savers, list) and self.feedback in savers:
            savers.remove(self.feedback)


@contextmanager
def listening(warn: Callable[[str], None]) -> Iterator[Choices]:
    """Within it, choices of max-autotune are recorded. Imports nothing: waits until something imports the selector."""
    choices = Choices(warn)
    try:
        with after_import(SELECTOR, choices.install):
            yield choices
    finally:
        choices.remove()


def _choice(timings: Any, name: Any, inputs: Any, choices: Any) -> dict[str, Any]:
    rows = [{"name": str(getattr(choice, "name", choice))[:200], "description": str(getattr(choice, "description", "") or "")[:1000],
             "time_ns": compiled_triton.time_ns(timing)} for choice, timing in list(dict(timings).items())[:MAX_CANDIDATES]]
    rows.sort(key=lambda row: (row["time_ns"] is None, row["time_ns"] or 0.0))
    return {"operator": str(name)[:200], "uses": 1, "inputs": [_shape(node) for node in list(inputs)[:16]],
            "candidates": max(len(rows), len(list(choices or ()))), "timings": rows}


def _shape(node: Any) -> str:
    """"float32[64, 128]" of an Inductor node, "" when it does not say."""
    try:
        return f"{str(node.get_dtype()).removeprefix('torch.')}[{', '.join(str(size) for size in node.get_size())}]"[:200]
    except Exception:  # noqa: BLE001 - Inductor's nodes differ by version; the shape is a nicety
        return ""

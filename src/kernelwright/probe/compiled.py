"""What was compiled for the workload, gathered after the measured calls: raw/compiled/index.json and the files beside it.

The index is model/capture.py's CompiledIndex. Nothing is imported for it: Triton and Inductor are looked at only when the
workload has imported them, and only through objects that are there already.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

from . import compiled_inductor, compiled_triton
from .results import write_bytes, write_json

FOLDER = "compiled"
INDEX = "index.json"
MAX_KERNELS = 200
MAX_GRAPHS = 50
MAX_FILE_BYTES = 4 << 20
MAX_TOTAL_BYTES = 64 << 20
"""GPT-2 under Inductor leaves about 2 MB; exhaustive max-autotune runs and generated giants are cut here."""


class Store:
    """Writes files into raw/compiled/ until a cap is hit; `left_out` says what was not written and why."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.written = 0
        self.total_bytes = 0
        self.left_out: list[str] = []

    def add(self, content: Any, kind: str, what: str) -> dict[str, Any] | None:
        """One file of text or bytes; its entry for the index, None when a cap is hit. Raises OSError."""
        data = content if isinstance(content, bytes) else str(content).encode("utf-8", "replace")
        if len(data) > MAX_FILE_BYTES:
            self.left_out.append(f"{kind} of {what[:100]}: {len(data)} bytes, more than {MAX_FILE_BYTES}")
            return None
        if self.total_bytes + len(data) > MAX_TOTAL_BYTES:
            self.left_out.append(f"{kind} of {what[:100]}: all files together would pass {MAX_TOTAL_BYTES} bytes")
            return None
        os.makedirs(self.folder, exist_ok=True)
        name = f"k{self.written:04d}.{kind}"
        write_bytes(os.path.join(self.folder, name), data)
        self.written += 1
        self.total_bytes += len(data)
        return {"file": name, "kind": kind, "bytes": len(data)}


def collect(out_dir: str, choices: list[dict[str, Any]], warn: Callable[[str], None]) -> str | None:
    """Gather and write; the index's name inside out_dir, None when nothing was compiled or tuned.

    choices: what max-autotune reported. A collector that fails costs its own part, with a warning. Raises OSError.
    """
    folder = os.path.join(out_dir, FOLDER)
    _clear(folder)
    triton, inductor = sys.modules.get("triton"), sys.modules.get("torch._inductor")
    if triton is None and inductor is None:
        return None
    store = Store(folder)
    kernels = _guarded("the compiled kernels", lambda: _kernels(store), warn) or []
    graphs = _guarded("the generated code", lambda: compiled_inductor.graphs(store, MAX_GRAPHS), warn) or []
    if not (kernels or graphs or choices):
        return None
    for line in store.left_out[:5]:
        warn(f"not kept of the compiled code: {line}")
    if len(store.left_out) > 5:
        warn(f"not kept of the compiled code: {len(store.left_out) - 5} more, listed in raw/{FOLDER}/{INDEX}")
    os.makedirs(folder, exist_ok=True)
    write_json(os.path.join(folder, INDEX), {"kernels": kernels, "graphs": graphs, "choices": choices, "left_out": store.left_out[:1000]})
    return f"{FOLDER}/{INDEX}"


def _kernels(store: Store) -> list[dict[str, Any]]:
    """Inductor's kernels and the workload's own Triton kernels that ran; one walk over the objects for both."""
    found = _objects()
    of_inductor = {id(function) for tuner in found["CachingAutotuner"] for function in compiled_triton.chain(tuner)}
    generated = compiled_inductor.in_use(found["CachingAutotuner"])
    tuners = {id(compiled_triton.chain(tuner)[-1]): tuner for tuner in found["Autotuner"]}
    own = [function for function in found["JITFunction"] if id(function) not in of_inductor and compiled_triton.has_run(function)]
    wrapped = {compiled_triton.name_of(function): function for function in found["JITFunction"] if id(function) not in of_inductor}
    sources: list[Callable[[], dict[str, Any] | None]] = [
        *(partial(compiled_inductor.kernel, tuner, store, wrapped) for tuner in generated),
        *(partial(compiled_triton.kernel, function, tuners.get(id(function)), store) for function in own)]
    kernels: list[dict[str, Any]] = []
    failed = 0
    for at, describe in enumerate(sources):
        if len(kernels) == MAX_KERNELS:
            store.left_out.append(f"{len(sources) - at} kernels beyond the first {MAX_KERNELS}")
            break
        try:
            entry = describe()
        except Exception:  # noqa: BLE001 - objects of foreign libraries: one of an unknown shape must not cost the others
            failed += 1
            continue
        if entry is not None:
            kernels.append(entry)
    if failed:
        store.left_out.append(f"{failed} kernels whose objects have an unknown shape")
    return kernels


def _objects() -> dict[str, list[Any]]:
    """Live objects of the classes below, in a stable order (by name)."""
    homes = {"CachingAutotuner": "torch._inductor.runtime.triton_heuristics", "Autotuner": "triton.runtime.autotuner",
             "JITFunction": "triton.runtime.jit"}
    classes = {name: getattr(sys.modules.get(home, ModuleType("absent")), name, None) for name, home in homes.items()}
    known = tuple((name, kind) for name, kind in classes.items() if isinstance(kind, type))
    found: dict[str, list[Any]] = {name: [] for name in homes}
    if not known:
        return found
    every = tuple(kind for _, kind in known)
    for item in gc.get_objects():
        # type() and not isinstance(): __class__ may be the workload's own code (proxies, lazy modules).
        if issubclass(type(item), every):
            for name, kind in known:
                if issubclass(type(item), kind):
                    found[name].append(item)
    for items in found.values():
        items.sort(key=compiled_triton.name_of)
    return found


def _guarded(what: str, part: Callable[[], Any], warn: Callable[[str], None]) -> Any:
    try:
        return part()
    except OSError:
        raise
    except Exception as error:  # noqa: BLE001 - the outermost edge of an optional part that reads foreign objects
        warn(f"{what} could not be collected: {type(error).__name__}: {str(error)[:200]}")
        return None


def _clear(folder: str) -> None:
    """Files of an earlier run in the same folder."""
    for name in os.listdir(folder) if os.path.isdir(folder) else ():
        if name == INDEX or (name[:1] == "k" and name[1:5].isdigit()):
            os.unlink(os.path.join(folder, name))

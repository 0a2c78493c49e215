"""Imports a workload or candidate by path, as if it were run from its own folder."""

from __future__ import annotations

import importlib.util
import os
import random
import re
import sys
from importlib.machinery import SourceFileLoader
from types import CodeType, ModuleType

import torch

from .failures import bad_input

CANDIDATES = "candidates"
"""The folder, beside a workload, of what is tried in its place."""


class _FreshSource(SourceFileLoader):
    """Compiles from source each time: no bytecode left in the user's folder, none stale after a quick rewrite of a candidate."""

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.get_data(self.path), self.path)


def import_file(path: str) -> ModuleType:
    """Import a file by path under its own name, its folder first on sys.path. The same file gives the same module.

    A candidate (its folder is called `candidates`) finds its parent folder's files too, where the workload lies, as under the judge.

    Pickling, dataclasses, torch.compile and triton.jit (which read sources) then work as in `python FILE`, and `import NAME`
    elsewhere gives the same module. Where the name is taken (random.py), the module is called kernelwright_workload_NAME.
    Raises not_python; the file's own exceptions pass through.
    """
    path = os.path.abspath(path)
    stem = os.path.splitext(os.path.basename(path))[0]
    safe = re.sub(r"\W", "_", stem)
    for known in (sys.modules.get(stem), sys.modules.get(_apart(safe))):
        if known is not None and _same_file(getattr(known, "__file__", None), path):
            return known
    name = safe if safe.isidentifier() and safe not in sys.modules and safe not in sys.stdlib_module_names else _apart(safe)
    folder = os.path.dirname(path)
    folders = [folder, os.path.dirname(folder)] if os.path.basename(folder) == CANDIDATES else [folder]
    sys.path[:] = folders + [entry for entry in sys.path if entry not in folders]
    spec = importlib.util.spec_from_file_location(name, path, loader=_FreshSource(name, path))
    if spec is None or spec.loader is None:
        raise bad_input("not_python", "this is not a Python file", where=path, fix="give the path of a Python file")
    module = importlib.util.module_from_spec(spec)
    aliases = [name] + ([stem] if stem not in sys.modules and stem not in sys.stdlib_module_names else [])
    sys.modules.update(dict.fromkeys(aliases, module))
    try:
        spec.loader.exec_module(module)
    except BaseException:
        for alias in aliases:
            sys.modules.pop(alias, None)
        raise
    return module


def _apart(name: str) -> str:
    return f"kernelwright_workload_{name}"


def _same_file(one: str | None, other: str) -> bool:
    return one is not None and os.path.realpath(one) == os.path.realpath(other)


def seed_all(seed: int) -> None:
    """Seed torch (all devices), random, and numpy when the process has it."""
    random.seed(seed)
    torch.manual_seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None and hasattr(numpy, "random"):
        numpy.random.seed(seed % 2**32)

"""The scripts of bench/ as modules."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from unittest import mock

BENCH = Path(__file__).resolve().parents[1] / "bench"


def load(name: str) -> ModuleType:
    """bench/NAME.py, once: what one script imports of another is the same module. Its folder is on the path no longer: some of its
    modules are named as some of tests/."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, BENCH / f"{name}.py")
        sys.modules[name] = importlib.util.module_from_spec(spec)
        with mock.patch.object(sys, "path", [*sys.path]):
            spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]

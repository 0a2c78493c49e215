"""Something to do once a module has been imported, without importing it."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


@contextmanager
def after_import(name: str, then: Callable[[Any], None]) -> Iterator[None]:
    """Within it, `then(module)` is called once something imports `name`; at once where that has happened."""
    watcher = _Watcher(name, then)
    if name in sys.modules:
        then(sys.modules[name])
    else:
        sys.meta_path.insert(0, watcher)
    try:
        yield
    finally:
        if watcher in sys.meta_path:
            sys.meta_path.remove(watcher)


class _Watcher:
    """A meta path finder that finds nothing itself, and calls `then(module)` once the module has been imported."""

    def __init__(self, name: str, then: Callable[[Any], None]) -> None:
        self.name = name
        self.then = then

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name != self.name or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        try:
            spec = importlib.util.find_spec(name)
            loader: Any = spec.loader if spec is not None else None
            execute = loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                self.then(module)

            loader.exec_module = exec_module
        except (AttributeError, ImportError, ValueError):
            return None  # an unusual import system: it goes on without us
        return spec

"""Starts the probe in the workload's own interpreter, one at a time, and brings back the files it wrote.

The package can be called: `kernelwright.capture(...)` is `kernelwright.api.own_steps.capture(...)`, for programs that mark their own steps.
"""

import importlib
import sys
from types import ModuleType
from typing import Any


class _Callable(ModuleType):
    """Importing a submodule binds it to its package's attribute of that name: the public function and the package must be one thing."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """See kernelwright.api.own_steps.capture."""
        return importlib.import_module("kernelwright.api.own_steps").capture(*args, **kwargs)


sys.modules[__name__].__class__ = _Callable

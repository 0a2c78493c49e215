"""kernelwright: profiles GPU workloads, finds the bottleneck, tries improvements and judges them.

    import kernelwright

    found = kernelwright.profile("workload.py", "event")
    verdict = kernelwright.judge("workload.py", "candidate.py", precision="bf16")
    with kernelwright.capture("train") as capture: ...
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .api.own_steps import Capture as Capture
    from .api.own_steps import capture as capture
    from .api.profiling import profile as profile
    from .judge.api import judge as judge
    from .judge.api import rejudge as rejudge
    from .judge.options import JudgeOptions as JudgeOptions
    from .judge.session import ReferenceSession as ReferenceSession
    from .model.errors import KernelwrightError as KernelwrightError
    from .model.profile import Profile as Profile
    from .model.verdict import Verdict as Verdict

__version__ = "0.1.0"
__all__ = ["Capture", "JudgeOptions", "KernelwrightError", "Profile", "ReferenceSession", "Verdict", "capture", "judge", "profile",
           "rejudge"]
_HOMES = {"Capture": "api.own_steps", "KernelwrightError": "model.errors", "Profile": "model.profile", "profile": "api.profiling",
          "rejudge": "judge.api", "JudgeOptions": "judge.options", "ReferenceSession": "judge.session", "Verdict": "model.verdict"}


def __getattr__(name: str) -> Any:
    """The public names, imported when they are first asked for: what only wants the version loads nothing."""
    if name in ("capture", "judge"):  # packages that can be called
        return importlib.import_module(f".{name}", __name__)
    if name in _HOMES:
        return getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])

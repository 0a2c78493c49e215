"""kernelwright: profiles GPU workloads, finds the bottleneck, tries improvements and judges them.

    from kernelwright import JudgeOptions, ReferenceSession, Verdict, judge

    verdict = judge("workload.py", "candidate.py", precision="bf16")
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .judge.api import judge as judge
    from .judge.api import rejudge as rejudge
    from .judge.options import JudgeOptions as JudgeOptions
    from .judge.session import ReferenceSession as ReferenceSession
    from .model.verdict import Verdict as Verdict

__version__ = "0.1.0"
__all__ = ["JudgeOptions", "ReferenceSession", "Verdict", "judge", "rejudge"]
_HOMES = {"rejudge": "judge.api", "JudgeOptions": "judge.options", "ReferenceSession": "judge.session", "Verdict": "model.verdict"}


def __getattr__(name: str) -> Any:
    """The public names, imported when they are first asked for: what only wants the version loads nothing."""
    if name == "judge":
        return importlib.import_module(".judge", __name__)
    if name in _HOMES:
        return getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])

"""Correctness, paired timing and audits of one candidate -> Verdict. Trusts nothing in the candidate's process.

The package can be called: `kernelwright.judge(workload, candidate)` is `kernelwright.judge.judge(workload, candidate)`.
"""

import inspect
import sys
from types import ModuleType
from typing import Any

from ..model.verdict import Verdict
from .api import judge, rejudge
from .options import JudgeOptions, OfReference, OutOfTime
from .session import ReferenceSession

__all__ = ["JudgeOptions", "OfReference", "OutOfTime", "ReferenceSession", "judge", "rejudge"]


class _Callable(ModuleType):
    """Importing a submodule binds it to its package's attribute of that name: the verb and the package must be one thing."""

    def __call__(self, *args: Any, **kwargs: Any) -> Verdict:
        return judge(*args, **kwargs)


_Callable.__call__.__doc__ = judge.__doc__
__signature__ = inspect.signature(judge)
sys.modules[__name__].__class__ = _Callable

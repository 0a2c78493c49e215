"""Correctness, paired timing and audits of one candidate -> Verdict. Trusts nothing in the candidate's process."""

from .options import JudgeOptions, OfReference, OutOfTime
from .run import judge
from .session import ReferenceSession

__all__ = ["JudgeOptions", "OfReference", "OutOfTime", "ReferenceSession", "judge"]

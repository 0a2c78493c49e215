"""A gain that came otherwise than predicted: what its audit needs, and what came of it. Pure; the ledger's rows decide.

What a pass said is held against the closing profile, so such a gain may be known only then. optimized.py is judged once more there, with
every audit: that can only take away, never add, so it spends nothing of the confirmations' error budget.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..model.trial import Hypothesis
from ..model.verdict import Experiment
from .confirm import AUDIT, OF, is_audit, is_confirmation
from .ending import Kept, gain
from .hypothesis import beyond_prediction

CLOSING_S = 60.0
"""The closing profile, an audit after it and the report take at most so long after the budget."""
REPORT_S = 5.0
"""Kept of it for the report (two busy cores: 0.5 s, the import of matplotlib included)."""
AUDIT_S = 20.0
"""What the judge's further conditions and audits take beside the judgement itself (H200: 10 to 20 s)."""


def doubt(kept: Kept, hypotheses: Sequence[Hypothesis]) -> str:
    """In which way the gain of what was kept is not the one that was predicted; "" where it is."""
    names = [one.name for one in hypotheses if one.result == "unexplained"]
    if names:
        return f"Unexplained: {', '.join(names)} gain{'s' if len(names) == 1 else ''} in another way, or more, than predicted"
    if beyond_prediction(kept.row.prediction, kept.verdict.speedup or 1.0):
        return "Unexplained: the whole gains more than all its passes together said they could"
    return ""


def audit_of(kept: Kept, rows: Sequence[Experiment], sha256: str) -> Experiment | None:
    """The judgement of optimized.py (its digest: sha256) with every audit: its confirmation where that had them, else the one for this."""
    if kept.confirmation is not None and AUDIT in kept.confirmation.tags:
        return kept.confirmation
    return next((row for row in reversed(rows) if is_audit(row) and row.tags[OF] == kept.row.name and row.verdict is not None
                 and row.verdict.candidate_sha256 == sha256), None)


def needed_s(kept: Kept) -> float:
    """Seconds that such a judgement is expected to take."""
    return (kept.confirmation or kept.row).elapsed_s + AUDIT_S


def words(why: str, audit: Experiment | None, why_not: str) -> str:
    """What the report says. why: `doubt`; why_not: why there is no audit."""
    if audit is None or audit.verdict is None:
        return f"{why}. Not audited: {why_not}."
    if is_confirmation(audit):
        return f"{why}. The confirmation was made with all of the judge's audits and conditions."
    return f"{why}. optimized.py was judged once more, with all of the judge's audits and conditions: {audit.verdict.verdict}" \
           f"{f' {gain(audit.verdict)}' if audit.verdict.speedup is not None else ''}."

"""FLOPs by counters, all pipes together, against the operator's analytic count."""

from __future__ import annotations

from collections.abc import Sequence

from ...model.profile import Finding, Operator, Profile
from ...roofline.knowledge import Rule
from ...roofline.use import Counted
from ..audit import Seen, Violation, audit
from ..common import Outcome

NAME = "flops_audit"
_WORDS = {"tensor": "tensor pipe", "plain": "FMA pipe"}


def check(profile: Profile, rule: Rule) -> Outcome:
    """Below: fewer than the shapes demand. Above: the same product done several times, padding, or recomputation."""

    def look(_operator: Operator, launches: Sequence[Counted]) -> Seen | None:
        kinds = {"tensor": 0.0, "plain": 0.0}
        for each in launches:
            if each.flops is None:
                return None
            for pipe, flops in each.flops.items():
                kinds[pipe.partition(":")[0]] += flops
        total = sum(kinds.values())
        return Seen(most=total, least=total, level=_WORDS[max(kinds, key=lambda kind: kinds[kind])])

    found = audit(NAME, profile, rule, lambda operator: operator.flops, look)
    if not isinstance(found, Violation):
        return found
    return Finding(rule=NAME, trigger=f"flops_over_minimum={found.ratio:.2f}", **found.words(rule, work))


def work(amount: float) -> str:
    """FLOPs in words."""
    return f"{amount / 1e9:.3g} GFLOP" if amount >= 1e8 else f"{amount / 1e6:.3g} MFLOP"

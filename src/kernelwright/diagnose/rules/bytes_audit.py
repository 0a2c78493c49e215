"""Bytes by counters against the operator's analytic minimum: inputs read once, outputs written once."""

from __future__ import annotations

from collections.abc import Sequence

from ...model.profile import Finding, Operator, Profile
from ...roofline.ceilings import LEVELS
from ...roofline.knowledge import Rule
from ...roofline.use import Counted
from ..audit import Seen, Violation, audit
from ..common import Outcome

NAME = "bytes_audit"


def check(profile: Profile, rule: Rule) -> Outcome:
    """Below: no level moved what the shapes demand. Above: DRAM traffic beyond what any cache could have spared.

    ncu flushes the caches before each launch, so compulsory misses are in the DRAM bytes, also of what an earlier launch of the same
    call left in L2: such reads, up to L2's size, are not held against it. Writes may still lie in L2 when a launch ends, so DRAM bytes
    below the minimum prove nothing: for that the level with the most bytes counts.
    """
    cache = profile.capture_metadata.l2_bytes or float("inf")

    def look(_operator: Operator, launches: Sequence[Counted]) -> Seen | None:
        known = [level for level in LEVELS if all(level in each.bytes for each in launches)]
        if "dram" not in known or len(known) < 2:
            return None
        sums = [sum(each.bytes[level] for each in launches) for level in known]
        doubtful = sum(min(each.dram_read, cache) for each in launches[1:])
        return Seen(most=max(sums), least=sum(each.bytes["dram"] for each in launches) - doubtful, level="DRAM")

    found = audit(NAME, profile, rule, lambda operator: operator.min_bytes, look)
    if not isinstance(found, Violation):
        return found
    return Finding(rule=NAME, trigger=f"bytes_over_minimum={found.ratio:.2f}", **found.words(rule, size))


def size(amount: float) -> str:
    """Bytes in words."""
    return f"{amount / 1e6:.3g} MB" if amount >= 1e5 else f"{amount / 1e3:.3g} kB"

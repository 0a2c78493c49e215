"""L2 hit rate: a locality issue."""

from __future__ import annotations

from ...model.profile import Profile
from ...roofline.knowledge import Rule
from ..common import Outcome
from ..counters import check_metric

NAME = "l2_hit"


def check(profile: Profile, rule: Rule) -> Outcome:
    """Healthy range and hint are in knowledge/metrics.yaml; abstains without counters."""
    return check_metric(NAME, profile, rule)

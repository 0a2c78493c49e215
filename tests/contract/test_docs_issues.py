"""docs/issues.md against knowledge/bottlenecks.yaml: every rule of the page exists, and its numbers are the thresholds."""

from __future__ import annotations

import re
from pathlib import Path

from kernelwright.diagnose.rules import RULES
from kernelwright.roofline.knowledge import bottlenecks, counter_knowledge

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "issues.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\|[^|]*\| `(\w+)` \| ([^|]+) \| ([^|]+) \|$", PAGE, re.MULTILINE)
NOT_ON_THE_PAGE = {"kernel_bottleneck": {"call_share_pct"}}
"""Thresholds that only keep a rule from speaking of trifles."""


def test_rules_of_the_table_exist() -> None:
    assert len(ROWS) == 19 and {rule for rule, _, _ in ROWS} <= set(RULES)


def test_numbers_are_the_thresholds() -> None:
    for rule, when, _ in ROWS:
        known = bottlenecks().rules[rule]
        healthy = counter_knowledge().roles[known.role].healthy if known.role else None
        limits = [limit for limit in (healthy.above, healthy.at_most) if limit is not None] if healthy else []
        expected = sorted([*limits, *(value for name, value in known.thresholds.items() if name not in NOT_ON_THE_PAGE.get(rule, ()))])
        assert sorted(float(number) for number in re.findall(r"\d+(?:\.\d+)?", when)) == expected, rule


def test_triggers_are_those_that_the_rules_write() -> None:
    for rule, _, triggers in ROWS:
        source = (ROOT / "src" / "kernelwright" / "diagnose" / "rules" / f"{rule}.py").read_text(encoding="utf-8")
        for trigger in re.findall(r"`(\w+)`", triggers):
            assert trigger.replace("5us", "{limit_us:.0f}us") + "=" in source, trigger

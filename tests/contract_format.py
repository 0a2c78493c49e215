"""The exact formats of the output contract and of a devlog entry, line by line, independent of the templates.

`check_contract(text)` and `check_devlog_entry(text)` return what is wrong, a line each; an empty list means that it holds. The contract's
own checker is the one that the hooks use.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "hooks"))

from contract_check import TOKEN_LIMIT, Lines, check_contract, split_row

__all__ = ["TOKEN_LIMIT", "check_contract", "check_devlog_entry", "split_row"]


def check_devlog_entry(text: str) -> list[str]:
    """Faults of one devlog entry (without the heading that the log puts above it)."""
    lines = Lines(text)
    lines.match(r"\*\*Performance\*\* \(.+, (?:locked clocks|clocks not locked), [^,]+(?:, [^,=]+=[^,]+)*\):", "**Performance** (...)")
    lines.exactly("", "| Metric | Value | vs Previous |", "| ----------------- | ------- | ----------- |")
    lines.match(r"\| Duration \| (?:<?\d+\.\d\d μs|n/a) \| (?:\d+\.\d% (?:faster|slower)|--) \|", "the Duration row")
    for name in ("Achieved TFLOPs/s", "Achieved GB/s"):
        lines.match(rf"\| {name} \| (?:<?\d+\.\d\d|n/a) \| (?:[+-]\d+\.\d%|--) \|", f"the {name} row")
    for name in ("Occupancy", "TC Util"):
        lines.match(rf"\| {name} \| (?:\d+%|n/a) \| -- \|", f"the {name} row")
    lines.exactly("")
    lines.match(r"\*\*Bottleneck\*\*: (?:(?:Memory|Compute|Latency)-bound|n/a)", "**Bottleneck**: <kind>")
    for heading in ("Issues", "Insights"):
        lines.exactly("", f"**{heading}**:")
        lines.match(r"- \S.*", f"at least one bullet under {heading}")
        while lines.peek().startswith("- "):
            lines.match(r"- \S.*", "a bullet")
    lines.end()
    return lines.faults

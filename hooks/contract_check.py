"""The exact form of the output contract, line by line, independent of the templates: hooks and tests check with this one.

`check_contract(text)` returns what is wrong, a line each; an empty list means that it holds.
"""

from __future__ import annotations

import re

TOKEN_LIMIT = 1500
NUMBER = r"(?:-?\d+\.\d{2,}|n/a)"
PERCENT = r"(?:-?\d+\.\d|n/a)"
CELL = r"(?:[^|\\\n]|\\.)+?"
STAGE_HEAD = ["| Stage | Duration (us) | TC% | DRAM% | Occ% | Bottleneck | Key Issue |",
              "|-------|---------------|-----|-------|------|------------|-----------|"]
BASELINE_HEAD = ["| Metric | Previous | Current | Change |", "|--------|----------|---------|--------|"]
STAGE_ROW = re.compile(rf"\| {CELL} \| {NUMBER} \| {PERCENT} \| {PERCENT} \| {PERCENT} \| (?:Memory|Compute|Latency|n/a) \| {CELL} \|")
OPPORTUNITY = re.compile(r"([123])\. (.+?) — est\. (?:(\d+\.\d)%|n/a) gain — trigger: ([^\s=—][^=—]*=[^—]+)")
BASELINE_ROW = re.compile(rf"\| {CELL} \| (?:-?[\d.]+|n/a) \| (?:-?[\d.]+|n/a) \| "
                          r"(?:(?:\d+\.\d% (?:faster|slower)|[+-]\d+\.\d%)(?: "
                          r"\((?:within noise|too noisy to compare|one replay each, noise not known|two profiles, not paired)\))?"
                          r"|[+-]\d+\.\d points|n/a) \|")
SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z0-9\"'(])")


class Lines:
    """Reads a document line by line and notes what is not as it must be."""

    def __init__(self, text: str) -> None:
        self.lines = text.split("\n")
        self.place = 0
        self.faults: list[str] = []

    def take(self) -> str:
        self.place += 1
        return self.lines[self.place - 1] if self.place <= len(self.lines) else ""

    def peek(self) -> str:
        return self.lines[self.place] if self.place < len(self.lines) else ""

    def fault(self, wanted: str, found: str) -> None:
        self.faults.append(f"line {self.place}: wanted {wanted}, found {found!r}")

    def exactly(self, *wanted: str) -> None:
        for line in wanted:
            found = self.take()
            if found != line:
                self.fault(repr(line), found)

    def match(self, pattern: str | re.Pattern[str], what: str) -> re.Match[str] | None:
        found = self.take()
        match = re.fullmatch(pattern, found)
        if match is None:
            self.fault(what, found)
        return match

    def rows(self, pattern: re.Pattern[str], what: str) -> int:
        count = 0
        while self.peek().startswith("|"):
            self.match(pattern, what)
            count += 1
        return count

    def end(self) -> None:
        if self.lines[self.place:] != [""]:
            self.fault("the end and one line end", "\n".join(self.lines[self.place:])[:200])


def split_row(line: str) -> list[str]:
    """Cells of a table row; a backslash escapes the pipe."""
    return [cell.strip() for cell in re.findall(r"((?:[^|\\]|\\.)*)\|", line)[1:]]


def check_contract(text: str, *, baseline: bool | None = None) -> list[str]:
    """Faults of a contract. baseline: whether `vs Baseline` must be there (None: either is right)."""
    lines = Lines(text)
    lines.match(r"## Profile: \S.*", "## Profile: <kernel> <version>")
    lines.exactly("", "### Configuration")
    _configuration(lines)
    lines.exactly("", "### Stages", *STAGE_HEAD)
    if lines.rows(STAGE_ROW, "a stage row") == 0:
        lines.fault("at least one stage", "none")
    lines.exactly("")
    lines.match(r"### Bottleneck: (?:(?:Memory|Compute|Latency)-bound|n/a)", "### Bottleneck: <kind>")
    cause = lines.match(r"Root cause: (\S.*)", "Root cause: ...")
    if cause and len(SENTENCE_END.split(cause[1])) > 2:
        lines.fault("at most 2 sentences", cause[1])
    lines.exactly("", "### Top 3 Opportunities (ranked by estimated impact)")
    _opportunities(lines)
    if lines.peek() == "" and lines.place + 1 < len(lines.lines):
        if baseline is False:
            lines.fault("no vs Baseline", lines.lines[lines.place + 1])
        lines.exactly("", "### vs Baseline", *BASELINE_HEAD)
        if lines.rows(BASELINE_ROW, "a baseline row") == 0:
            lines.fault("at least one baseline row", "none")
    elif baseline:
        lines.fault("### vs Baseline", "nothing")
    lines.end()
    if -(-len(text) // 4) >= TOKEN_LIMIT:
        lines.faults.append(f"{-(-len(text) // 4)} tokens, and {TOKEN_LIMIT} are the limit")
    return lines.faults


def _configuration(lines: Lines) -> None:
    head, rule, values = lines.take(), lines.take(), lines.take()
    names = re.findall(r"\| ((?:[^|\\]|\\.)+?) (?=\|)", head)
    if not names or head != "".join(f"| {name} " for name in names) + "|":
        lines.fault("a table head", head)
    if rule != "".join("|" + "-" * (len(name) + 2) for name in names) + "|":
        lines.fault("a rule as wide as its head", rule)
    if len(split_row(values)) != len(names):
        lines.fault(f"{len(names)} values", values)


def _opportunities(lines: Lines) -> None:
    gains: list[float] = []
    while lines.peek() and len(gains) < 4:
        match = lines.match(OPPORTUNITY, "N. <name> — est. X% gain — trigger: <metric=value>")
        if match is None:
            return
        if int(match[1]) != len(gains) + 1:
            lines.fault(f"number {len(gains) + 1}", match[1])
        gains.append(float(match[3] or 0))
    if not 1 <= len(gains) <= 3:
        lines.fault("one to three opportunities", str(len(gains)))
    if gains != sorted(gains, reverse=True) or any(gain > 100 for gain in gains):
        lines.fault("gains of at most 100%, largest first", str(gains))

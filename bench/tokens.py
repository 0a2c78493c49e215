"""How much of an agent's context each document takes: writes docs/tokens.md. `python bench/tokens.py`; needs kernelwright importable."""

from __future__ import annotations

import sys
from pathlib import Path

import yaml

from kernelwright.report.contract import CHARACTERS_A_TOKEN, TOKEN_LIMIT, token_count

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "tokens.md"
ONCE = (
    ("Skills, read when one is called", "skills/*/SKILL.md"),
    ("References, read where the skill says so", "skills/*/references/*.md"),
    ("Agents, read by the agent itself", "agents/*.md"),
    ("Playbooks, read for a finding", "knowledge/playbooks/*.md"),
)
ANSWERS = (
    ("Contracts", ("contract_*.md", "capture_*.md")),
    ("Reports", ("report_*.md",)),
    ("Development log entries", ("devlog_*.md",)),
)
"""Recorded and constructed examples that the tests hold."""


def tokens_of(path: Path) -> int:
    """Tokens of a whole file."""
    return token_count(path.read_text(encoding="utf-8"))


def table(head: str, rows: list[tuple[str, int]], *, total: bool = True) -> list[str]:
    """One table, its rows by name. Raises ValueError where there is nothing to count."""
    if not rows:
        raise ValueError(f"no files for: {head}")
    return ["", f"## {head}", "", "| Document | Tokens |", "|----------|-------:|",
            *(f"| {name} | {tokens} |" for name, tokens in sorted(rows)),
            *([f"| together | {sum(tokens for _, tokens in rows)} |"] if total else [])]


def always() -> list[tuple[str, int]]:
    """Name and description of each skill and agent: what a client shows the model before anything is called."""
    rows = []
    for path in (*ROOT.glob("skills/*/SKILL.md"), *ROOT.glob("agents/*.md")):
        matter = yaml.safe_load(path.read_text(encoding="utf-8").split("---\n")[1])
        rows.append((str(path.relative_to(ROOT)), token_count(f"{matter['name']}: {matter['description']}")))
    return rows


def page() -> str:
    """The whole page."""
    lines = [
        "# Tokens",
        "",
        f"What each document takes of an agent's context. A token is counted as {CHARACTERS_A_TOKEN} characters. Written by "
        "`python bench/tokens.py`; a test holds it to the files.",
        f"A contract stays below {TOKEN_LIMIT:,} tokens whatever the workload; reports are from the tests' examples, real ones vary with",
        "the workload.",
    ]
    lines += table("Names and descriptions, in every session", always())
    for head, pattern in ONCE:
        lines += table(head, [(str(path.relative_to(ROOT)), tokens_of(path)) for path in ROOT.glob(pattern)])
    expected = ROOT / "tests" / "golden" / "expected"
    for head, patterns in ANSWERS:
        files = [path for pattern in patterns for path in expected.glob(pattern)]
        lines += table(f"{head}, as the tests have them", [(path.stem, tokens_of(path)) for path in files], total=False)
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(PAGE)
    sys.exit(0)

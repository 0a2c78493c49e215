"""docs/errors.md against the source: every error code that can be raised is on the page with its exit code, and no other is."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "errors.md"
EXITS = {
    "BadInput": 2, "MachineLacks": 3, "WorkloadFailed": 4, "NotAcceptable": 5, "ReferenceUnusable": 2, "ReferenceLacks": 3,
    "ReferenceFailed": 4, "bad_input": 2, "machine_lacks": 3, "workload_failed": 4, "SetupError": 3, "WorkerFailed": 4,
    "_Internal": 1, "KernelwrightError": 2, "ProbeFailure": None, "fault": 2, "_Fault": 2, "_Tool": 3,
}
"""What raises an error -> its exit code; None: given as exit_code."""
NO_FIX_NEEDED = {"WorkerFailed"}
"""Their mend is added where they become the workload's failure or a verdict."""


RENAMED = {"died": "workload_died"}
"""What judge/channel.py calls either side's death is, of the workload's, what a profile calls it."""


@dataclass(frozen=True)
class Raised:
    """One place in the source."""

    place: str
    name: str
    code: str
    """A regular expression where the source writes an f-string."""
    exit: int | None
    has_fix: bool


def _code(node: ast.expr) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return re.escape(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(re.escape(str(part.value)) if isinstance(part, ast.Constant) else "[a-z_]+" for part in node.values)
    return None


def _codes(node: ast.expr) -> list[str]:
    nodes = [node.body, node.orelse] if isinstance(node, ast.IfExp) else [node]
    return [code for code in map(_code, nodes) if code is not None]


@cache
def raised() -> tuple[Raised, ...]:
    """Every call that makes an error with a code of its own (those that pass another's code on are none)."""
    return tuple(_raised())


def _raised() -> Iterator[Raised]:
    for file in sorted((ROOT / "src" / "kernelwright").rglob("*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        aliases = {target.id: "BadInput" for node in ast.walk(tree) if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name)
                   and node.value.id in EXITS for target in node.targets if isinstance(target, ast.Name)}
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            function = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            function = aliases.get(function, function)
            if function not in EXITS:
                continue
            exits = [keyword.value for keyword in node.keywords if keyword.arg == "exit_code"]
            named = exits[0] if exits else None
            own = {"EXIT_INTERRUPTED": 130, "EXIT_WORKLOAD_FAILED": 4, "EXIT_BAD_INPUT": 2, "EXIT_MACHINE_LACKS": 3}
            exit_code = own.get(getattr(named, "id", ""), EXITS[function]) if named is not None else EXITS[function]
            fixes = [keyword.value for keyword in node.keywords if keyword.arg == "fix"]
            empty = bool(fixes) and isinstance(fixes[0], ast.Constant) and not fixes[0].value
            for code in _codes(node.args[0]):
                code = RENAMED.get(code, code)
                told = bool(fixes) or len(node.args) >= {"fault": 4, "_Tool": 4}.get(function, 99)
                yield Raised(f"{file.relative_to(ROOT)}:{node.lineno}", function, code, exit_code, told and not empty)


def page() -> dict[str, set[int]]:
    """Code -> its exit codes, as the page's tables say."""
    rows = re.findall(r"^\| `([a-z0-9_]+)` \| ([\d, ]+) \| (.+) \| (.+) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert len({row[0] for row in rows}) == len(rows), "a code is on the page twice"
    assert all(meaning.strip() and fix.strip() for _, _, meaning, fix in rows)
    return {code: {int(number) for number in exits.split(",")} for code, exits, _, _ in rows}


SPECIAL = {"output_not_writable": {2}, "no_disk_space": {3}, "interrupted": {130}, "python_too_old": {3}}
"""Codes of classes that bring their own (NotWritable, Interrupted), and the one that the scripts' entry writes without any import."""


def test_every_code_of_the_source_is_on_the_page_with_its_exit_code():
    listed, found = page(), raised()
    assert len(found) > 80
    for item in found:
        matching = [code for code in listed if re.fullmatch(item.code, code)]
        assert matching, f"{item.code} ({item.place}) is not in docs/errors.md"
        if item.exit is not None:
            assert any(item.exit in listed[code] for code in matching), f"{item.code} ({item.place}): exit {item.exit} is not on the page"
    for code, exits in SPECIAL.items():
        assert listed.get(code, set()) >= exits, code


def test_every_code_on_the_page_is_raised_somewhere():
    patterns = {item.code for item in raised()} | set(SPECIAL)
    gone = [code for code in page() if not any(re.fullmatch(pattern, code) for pattern in patterns)]
    assert not gone


def test_every_exit_code_on_the_page_is_one_that_the_code_has():
    by_code: dict[str, set[int]] = {code: set(exits) for code, exits in SPECIAL.items()}
    listed = page()
    for item in raised():
        for code in listed:
            if re.fullmatch(item.code, code) and item.exit is not None:
                by_code.setdefault(code, set()).add(item.exit)
    assert {code: exits - by_code.get(code, set()) for code, exits in listed.items() if exits - by_code.get(code, set())} == {}


def test_every_error_says_how_to_mend_it():
    without = [f"{item.place} {item.code}" for item in raised() if not item.has_fix and item.name not in NO_FIX_NEEDED]
    assert not without, without


def test_the_page_lists_the_exit_codes():
    from kernelwright.model import errors

    text = PAGE.read_text(encoding="utf-8")
    for name, number in vars(errors).items():
        if name.startswith("EXIT_"):
            assert re.search(rf"^\| {number} \| ", text, re.MULTILINE), name

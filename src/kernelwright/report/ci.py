"""Budgets in the forms that CI systems read: JUnit XML, and GitHub's workflow commands."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

from .budgets import BudgetRow
from .text import plain

_LEVELS = {"over": "error", "failed": "error", "unsure": "warning"}


def junit_xml(rows: Sequence[BudgetRow], file: Path) -> str:
    """One test case a budget (JUnit's XML as Jenkins, GitLab and GitHub actions read it). file: the project file."""
    counts = {outcome: str(sum(row.outcome == outcome for row in rows)) for outcome in ("over", "failed")}
    totals = {"tests": str(len(rows)), "failures": counts["over"], "errors": counts["failed"],
              "time": f"{sum(row.elapsed_s for row in rows):.3f}"}
    root = ElementTree.Element("testsuites", {"name": "kernelwright", **totals})
    suite = ElementTree.SubElement(root, "testsuite", {"name": "budgets", **totals, "skipped": "0"})
    for row in rows:
        case = ElementTree.SubElement(suite, "testcase", {
            "classname": plain(row.kernel), "name": plain(row.name), "time": f"{row.elapsed_s:.3f}", "file": plain(file, 1000),
            "line": str(row.line)})
        told = _told(row)
        if row.outcome == "over":
            ElementTree.SubElement(case, "failure", {"type": "over_budget", "message": told}).text = told
        elif row.outcome == "failed":
            code = (row.error or {}).get("code", "failed")
            ElementTree.SubElement(case, "error", {"type": plain(code), "message": told}).text = told
        else:
            ElementTree.SubElement(case, "system-out").text = told
    ElementTree.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ElementTree.tostring(root, encoding="unicode")}\n'


def github_annotations(rows: Sequence[BudgetRow], file: Path, root: Path) -> list[str]:
    """A workflow command for each budget that is not within. root: of the checkout; the project file is named relative to it."""
    place = os.path.relpath(file, root) if file.is_relative_to(root) else str(file)
    return [f"::{_LEVELS[row.outcome]} file={_property(place)},line={max(1, row.line)},title={_property(plain(f'{row.kernel} {row.name}'))}"
            f"::{_data(_told(row))}" for row in rows if row.outcome in _LEVELS]


def _told(row: BudgetRow) -> str:
    return plain(f"{row.outcome}: {row.measured}, {row.limit}" + (f"; {row.why}" if row.why else ""), 1000)


def _data(text: str) -> str:
    """As GitHub's toolkit escapes a message (actions/toolkit, packages/core/src/command.ts)."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")

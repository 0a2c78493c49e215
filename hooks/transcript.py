"""What a session's transcript says of kernelwright: whether it was used, the speed-ups and the contracts that its scripts measured."""

from __future__ import annotations

import json
import re
from typing import Any, Iterator

SIZE_LIMIT = 32_000_000
_USED = re.compile(rb"scripts/(?:optimize|judge|profile_kernel|compare|bench)\.py")
_MARKS = (b"speedup", b"speed-up", b"Speed-up", b"FASTER", b"faster")
_MEASURED = (
    re.compile(r'"speedup"\s*:\s*(\d+(?:\.\d+)?)'),
    re.compile(r"[Ss]peed-up (?:of )?(\d+(?:\.\d+)?)x"),
    re.compile(r"\b(\d+(?:\.\d+)?)x\b"),
)
_CONTRACT = re.compile(r"^## Profile: .*(?:\n(?:### .*|\|.*|Root cause: .*|[123]\. .*|)(?=\n|$))*", re.MULTILINE)
"""A heading and what follows as lines of a contract do (contract_check.py knows the whole form)."""
_PERCENT = re.compile(r"(\d+(?:\.\d+)?)% faster")


def measured_speedups(path: str, ours: bool = False) -> list[float] | None:
    """Ratios of old to new time that tool results and hooks brought into the session; None if kernelwright was not used or it is too long
    to know. ours: it is known to be used, e.g. one of its agents speaks. Raises OSError.
    """
    with open(path, "rb") as file:
        data = file.read(SIZE_LIMIT + 1)
    if len(data) > SIZE_LIMIT or not (ours or _USED.search(data)):
        return None
    found = [1.0]
    for line in data.splitlines():
        if any(mark in line for mark in _MARKS):
            for text in _results(line):
                found += _ratios(text)
    return found


def contracts(text: str) -> list[str]:
    """The contracts in a text, without the space around them and at the ends of their lines."""
    plain = "\n".join(line.rstrip() for line in text.splitlines())
    return [found.strip() for found in _CONTRACT.findall(plain)]


def results(path: str) -> list[str]:
    """All texts of the session that the model did not write and that speak of a profile; [] if it is too long. Raises OSError."""
    with open(path, "rb") as file:
        data = file.read(SIZE_LIMIT + 1)
    if len(data) > SIZE_LIMIT:
        return []
    return [text for line in data.splitlines() if b"## Profile: " in line for text in _results(line)]


def _ratios(text: str) -> list[float]:
    ratios = [float(value) for value in _MEASURED[0].findall(text) + _MEASURED[1].findall(text)]
    if "FASTER" in text or "kernelwright:" in text or "Speed-up [95% interval]" in text:
        ratios += [float(value) for value in _MEASURED[2].findall(text)]
    # "30% faster" in a contract is 30% less time.
    ratios += [1 / (1 - float(value) / 100) for value in _PERCENT.findall(text) if float(value) < 100]
    return ratios


def _results(line: bytes) -> Iterator[str]:
    """The texts of one transcript line that the model did not write: tool results and what hooks added."""
    try:
        entry = json.loads(line)
    except ValueError:
        return
    if not isinstance(entry, dict):
        return
    if entry.get("type") == "attachment":
        yield from _texts(entry.get("attachment"))
    elif entry.get("type") == "user":
        message = entry.get("message")
        content = message.get("content") if isinstance(message, dict) else None
        for block in content if isinstance(content, list) else []:
            if isinstance(block, dict) and block.get("type") == "tool_result":
                yield from _texts(block.get("content"))


def _texts(value: Any) -> Iterator[str]:
    waiting: list[tuple[Any, int]] = [(value, 0)]
    while waiting:
        item, depth = waiting.pop()
        if isinstance(item, str):
            yield item
        elif depth < 6 and isinstance(item, (list, dict)):
            waiting += [(part, depth + 1) for part in (item.values() if isinstance(item, dict) else item)]

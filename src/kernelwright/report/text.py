"""The one way by which text that we did not write (names, reasons, user notes) enters a document.

Kernel and stage names come from the workload, so they may hold anything: pipes, newlines, backticks, markup,
half a surrogate pair. After `cell` they are one line of inert Markdown, safe in a table, a heading or a bullet.
"""

from __future__ import annotations

import re
import unicodedata

from ..model.amounts import NA as NA

_BLOCK_START = re.compile(r"^(\d{1,9}(?=[.)](?:\s|$))|(?=[#>+*=~-]))")
"""Ends where a backslash stops a block from opening: before a sign, after the number of an ordered item ("59.9%" is none)."""
_TAG_START = re.compile(r"<(?=[A-Za-z/!?])")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z0-9\"'(])")


class Safe(str):
    """Text that is already inert; the templates print it as it is."""


def plain(value: object, limit: int = 200) -> str:
    """One line without control or invisible characters, at most `limit` characters ("…" in the place of what is cut out of it).

    Raises ValueError for a limit below 1.
    """
    if limit < 1:
        raise ValueError("limit must be at least 1")
    text = str(value)
    if not text.isprintable():  # as nearly all names are
        text = "".join(map(_visible, text))
    text = " ".join(text.split())
    if len(text) <= limit:
        return text
    tail = limit // 3  # generated kernels differ at the end of their names only
    return f"{text[: limit - 1 - tail].rstrip()}…{text[-tail:]}"


def _visible(char: str) -> str:
    category = unicodedata.category(char)
    if char.isspace() or category == "Cc":
        return " "
    if category == "Cs":
        return "\N{REPLACEMENT CHARACTER}"
    return "" if category in ("Cf", "Co", "Cn") else char


def cell(value: object, limit: int = 200) -> Safe:
    """`plain`, then made inert for Markdown: it opens no table cell, code span, tag, link or image."""
    if isinstance(value, Safe):
        return value
    text = plain(value, limit).replace("\\", "\\\\").replace("|", "\\|").replace("`", "'").replace("](", "]\\(")
    return Safe(_TAG_START.sub(r"\\<", text))


def named(value: object, limit: int = 200) -> Safe:
    """`cell`, or "n/a" where nothing visible is left."""
    return Safe(cell(value, limit) or NA)


def bullet(value: object, limit: int = 400) -> Safe:
    """`named` for the start of a list item: no heading, quote, rule or nested list can begin there."""
    return Safe(_BLOCK_START.sub(r"\1\\", named(value, limit)))


def code(value: object, limit: int = 200) -> Safe:
    """A code span inside a table cell (GitHub's tables take the backslash before a pipe away, also in code)."""
    text = plain(value, limit).replace("`", "'").replace("\\", "/").replace("|", "\\|")
    return Safe(f"`{text}`") if text else Safe(NA)


def first_sentences(text: str, count: int = 2, limit: int = 400) -> str:
    """At most `count` sentences of one line. A sentence ends at . ! or ? before a space and a capital or digit."""
    return " ".join(_SENTENCE_END.split(plain(text, limit))[:count])

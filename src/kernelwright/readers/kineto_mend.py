"""Text that some versions of torch wrote and that is no JSON -> JSON, line by line. Only for what can't be read as it is.

Known: quotes and backslashes in names that are not escaped (paths of Windows, the generated names of torch.compile), control characters,
bytes that are not UTF-8, and nan, inf or N/A as a value.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

_CONTROL = bytes(32 if code < 32 and code not in (10, 13) else code for code in range(256))
_NO_VALUE = re.compile(rb"(?<=[:,\[])([ ]*)(?:[-+]?(?:nan|inf|infinity)|N/A)(?=[ \r]*(?:[,}\]]|$))", re.IGNORECASE | re.MULTILINE)
_NAME = b'"name": "'
_NAME_END = re.compile(rb'"(?=, "pid": |,[ \r]*$)|\n', re.MULTILINE)
_QUOTE = re.compile(rb'(\\.)|"', re.DOTALL)
_BACKSLASH = re.compile(rb'\\(?:(["\\/bfnrt]|u[0-9a-fA-F]{4})|)')
_MOST_CARRIED_BYTES = 16 << 20


def mended(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The text with these faults mended. Raises whatever chunks raises."""
    rest = b""
    for chunk in chunks:
        text = rest + chunk
        cut = text.rfind(b"\n") + 1 if len(text) <= _MOST_CARRIED_BYTES else len(text)
        yield _mended(text[:cut])
        rest = text[cut:]
    yield _mended(rest)


def _mended(text: bytes) -> bytes:
    text = text.decode("utf-8", "replace").encode().translate(_CONTROL)
    text = b"".join(_names(text))
    text = _BACKSLASH.sub(lambda found: found[0] if found[1] else b"\\\\", text)
    return _NO_VALUE.sub(rb"\1null", text)


def _names(text: bytes) -> Iterator[bytes]:
    """The pieces of the text, each name mended. What follows a name in its line tells where it ends."""
    at = 0
    while (begin := text.find(_NAME, at)) >= 0 and (end := _NAME_END.search(text, begin + len(_NAME))) is not None:
        begin += len(_NAME)
        if end[0] == b"\n":
            yield text[at:end.end()]
            at = end.end()
        else:
            yield text[at:begin]
            yield _name(text[begin:end.start()])
            at = end.start()
    yield text[at:]


def _name(text: bytes) -> bytes:
    if any(found[1] is None for found in _BACKSLASH.finditer(text)):  # a path: none of its backslashes is meant as an escape
        text = text.replace(b"\\", b"\\\\")
    return _QUOTE.sub(lambda found: found[1] or b'\\"', text)

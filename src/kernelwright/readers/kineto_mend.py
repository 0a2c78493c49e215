"""Text that some versions of torch wrote and that is no JSON -> JSON, line by line as Kineto writes them. Only for what can't be read as it is.

Known: quotes and backslashes in names that are not escaped (paths of Windows, the generated names of torch.compile), control characters,
bytes that are not UTF-8, and nan, inf or N/A as a value.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

_CONTROL = bytes(32 if code < 32 and code not in (10, 13) else code for code in range(256))
_NO_VALUE = re.compile(rb"(?<=[:,\[])([ ]*)(?:[-+]?(?:nan|inf|infinity)|N/A)(?=[ \r]*(?:[,}\]]|$))", re.IGNORECASE | re.MULTILINE)
_NAME = re.compile(rb'("name": ")(.*?)("(?=, "pid": |,[ \r]*$))', re.MULTILINE)
_QUOTE = re.compile(rb'(\\.)|"', re.DOTALL)
_LONE_BACKSLASH = re.compile(rb'\\(?:(["\\/bfnrt]|u[0-9a-fA-F]{4})|)')
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
    text = _LONE_BACKSLASH.sub(lambda found: found[0] if found[1] else b"\\\\", text)
    text = _NAME.sub(lambda found: found[1] + _QUOTE.sub(lambda quote: quote[1] or b'\\"', found[2]) + found[3], text)
    return _NO_VALUE.sub(rb"\1null", text)

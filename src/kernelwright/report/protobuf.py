"""The wire format of protocol buffers for many messages of one shape at once, as rows of bytes. https://protobuf.dev/programming-guides/encoding

Numbers of a column take one width each: a varint may be padded with continuation bits, so all messages of a shape are equally long.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ..model.table import Int64

Rows: TypeAlias = npt.NDArray[np.uint8]
"""Shape (n, bytes)."""
VARINT, FIXED64, BYTES = 0, 1, 2


def varint(value: int) -> bytes:
    """One number of 64 bits; a negative one in two's complement."""
    value &= (1 << 64) - 1
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*made, value))


def tag(field: int, kind: int) -> bytes:
    """What stands before a field's value."""
    return varint(field << 3 | kind)


def number(field: int, value: int) -> bytes:
    """A field with one number."""
    return tag(field, VARINT) + varint(value)


def text(field: int, value: str) -> bytes:
    """A string field; what is no Unicode (half a surrogate pair) is replaced."""
    return message(field, value.encode("utf-8", "replace"))


def message(field: int, *parts: bytes) -> bytes:
    """A field with a message made of these parts."""
    body = b"".join(parts)
    return tag(field, BYTES) + varint(len(body)) + body


def numbers(field: int, values: Int64, width: int) -> Rows:
    """The same field of many messages; each varint is `width` bytes (7 bits a byte; 10 hold every int64). Shape (n, tag + width)."""
    bits = values.astype(np.uint64)
    shifts = np.arange(0, 7 * width, 7, dtype=np.uint64)
    digits = (bits[:, None] >> shifts & np.uint64(0x7F)).astype(np.uint8)
    digits[:, :-1] |= 0x80
    return beside(tag(field, VARINT), digits)


def fixed64(field: int, values: Int64) -> Rows:
    """A fixed64 field of many messages."""
    return beside(tag(field, FIXED64), values.astype("<u8").view(np.uint8).reshape(-1, 8))


def messages(field: int, *parts: bytes | Rows) -> Rows:
    """A field with a message, of many messages. At least one part is rows."""
    body = beside(*parts)
    return beside(tag(field, BYTES) + varint(body.shape[1]), body)


def beside(*parts: bytes | Rows) -> Rows:
    """Parts side by side; bytes stand in every row alike."""
    count = next(len(part) for part in parts if not isinstance(part, bytes))
    return np.hstack([np.broadcast_to(np.frombuffer(part, np.uint8), (count, len(part))) if isinstance(part, bytes) else part
                      for part in parts])

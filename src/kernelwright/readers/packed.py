"""The bytes of a file that may be gzip'd, some at a time and within bounds."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..model.errors import BadInput
from ..model.trace import RECORD_AGAIN

DEFAULT_MAX_BYTES = 16 << 30
CHUNK_BYTES = 1 << 20
MAX_RATIO = 250
"""Recorded traces pack 10 to 40 times smaller; gzip can't do more than 1032."""
RATIO_FROM_BYTES = 64 << 20
"""Smaller ones do no harm."""
_GZIP_MAGIC = b"\x1f\x8b"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def unpacked(path: Path, max_bytes: int = DEFAULT_MAX_BYTES) -> Iterator[bytes]:
    """The unpacked bytes in pieces, without a byte order mark. Raises BadInput for a file that is missing, broken or too large."""
    total = 0
    try:
        with path.open("rb") as raw:
            packed = raw.read(2) == _GZIP_MAGIC
            raw.seek(0)
            file: Any = gzip.GzipFile(fileobj=raw) if packed else raw
            while chunk := file.read(CHUNK_BYTES):
                first, total = total == 0, total + len(chunk)
                if total > max_bytes:
                    raise BadInput("trace_too_large", f"the trace is larger than {max_bytes} bytes decompressed", where=path.name,
                                   fix="profile fewer steps (--steps)")
                if packed and total > max(RATIO_FROM_BYTES, MAX_RATIO * raw.tell()):
                    raise BadInput("trace_too_large", f"the file unpacks to more than {MAX_RATIO} times its size, as no recording does",
                                   where=path.name, fix=RECORD_AGAIN)
                yield chunk.removeprefix(_BYTE_ORDER_MARK) if first else chunk
    except FileNotFoundError as error:
        raise BadInput("no_trace", "there is no such trace file", where=str(path), fix=RECORD_AGAIN) from error
    except (OSError, EOFError, zlib.error) as error:
        raise BadInput("bad_trace", f"the trace can't be read: {error}", where=path.name, fix=RECORD_AGAIN) from error

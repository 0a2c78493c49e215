"""Reader for Kineto traces (torch.profiler's Chrome JSON, plain or gzip'd) -> event tables in int64 nanoseconds.

Times in the file are decimal microseconds with three decimals ("4375891341195.630"). Above 2^43 us a float64 can no
longer hold single nanoseconds, so the number's own text is decoded and no time ever passes through a float.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..model.errors import BadInput
from ..model.trace import RECORD_AGAIN, Trace
from .kineto_document import read_document
from .kineto_stream import OtherLayout, read_parts

DEFAULT_MAX_BYTES = 2 << 30
_CHUNK_BYTES = 1 << 20
_GZIP_MAGIC = b"\x1f\x8b"


def read_kineto(path: Path, *, max_bytes: int = DEFAULT_MAX_BYTES) -> Trace:
    """Read one trace. max_bytes bounds the decompressed size.

    What is laid out as Kineto writes it is read part by part; other layouts are read whole, in several times their size of memory.

    Raises BadInput for a file that is missing, too large, truncated, not a Kineto trace, without a profiled step, or
    with a negative duration.
    """
    try:
        collector, devices = read_parts(_chunks(path, max_bytes))
    except OtherLayout:
        collector, devices = read_document(b"".join(_chunks(path, max_bytes)), path.name)
    return collector.trace(devices, path.name)


def _chunks(path: Path, max_bytes: int) -> Iterator[bytes]:
    """The decompressed text in pieces of at most _CHUNK_BYTES."""
    total = 0
    try:
        with path.open("rb") as raw:
            packed = raw.read(2) == _GZIP_MAGIC
            raw.seek(0)
            file: Any = gzip.GzipFile(fileobj=raw) if packed else raw
            while chunk := file.read(_CHUNK_BYTES):
                total += len(chunk)
                if total > max_bytes:
                    raise BadInput("trace_too_large", f"the trace is larger than {max_bytes} bytes decompressed", where=path.name,
                                   fix="profile fewer steps (--steps)")
                yield chunk
    except FileNotFoundError as error:
        raise BadInput("no_trace", "there is no such trace file", where=str(path), fix=RECORD_AGAIN) from error
    except (OSError, EOFError, zlib.error) as error:
        raise BadInput("bad_trace", f"the trace can't be read: {error}", where=path.name, fix=RECORD_AGAIN) from error


"""What kind of trace a file holds, by its contents: names and endings may say anything."""

from __future__ import annotations

import gzip
import re
import zlib
from pathlib import Path
from typing import Any, Literal

from ..model.errors import BadInput
from ..model.trace import RECORD_AGAIN
from .nsys_file import DEFAULT_MAX_BYTES, MAGIC, open_nsys
from .nsys_ranges import RANGES
from .nsys_tables import CALLS, COPIES, FILLS, GRAPHS, KERNELS

TraceKind = Literal["kineto", "nsys-sqlite", "nsys-rep"]
_GZIP_MAGIC = b"\x1f\x8b"
_REPORT = re.compile(rb"NVIDIA [\w ]{1,40} Report ")
"""Reports of 2021 to 2025 begin with "NVIDIA Tegra Profiler Report 1."."""
_EVENTS = b'"traceEvents"'
_LOOK_AT_BYTES = 4 << 20
"""Device properties and other metadata come before the events."""
_OF_NSYS = (RANGES, CALLS, KERNELS, COPIES, FILLS, GRAPHS)


def trace_kind(path: Path) -> TraceKind | None:
    """The kind of trace, None for anything else. Kineto's may be packed with gzip; what is packed and no Kineto trace is None.

    Raises BadInput for a file that is missing or can't be read, and for an SQLite file that is broken.
    """
    try:
        with path.open("rb") as file:
            head = file.read(max(len(MAGIC), 64))
            if head.startswith(MAGIC):
                return "nsys-sqlite" if _is_export(path) else None
            if _REPORT.match(head):
                return "nsys-rep"
            file.seek(0)
            return "kineto" if _is_kineto(gzip.GzipFile(fileobj=file) if head.startswith(_GZIP_MAGIC) else file) else None
    except FileNotFoundError as error:
        raise BadInput("no_trace", "there is no such trace file", where=str(path), fix="give the path of a trace file") from error
    except (OSError, EOFError, zlib.error) as error:
        raise BadInput("bad_trace", f"the trace can't be read: {error}", where=path.name, fix=RECORD_AGAIN) from error


def _is_export(path: Path) -> bool:
    with open_nsys(path, DEFAULT_MAX_BYTES) as file:
        return any(file.has(table) for table in _OF_NSYS)


def _is_kineto(file: Any) -> bool:
    text: bytes = file.read(_LOOK_AT_BYTES)
    return text.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{") and _EVENTS in text

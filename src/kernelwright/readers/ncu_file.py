"""The outer frame of an .ncu-rep file: whole or cut off, of which version, how many results. Nothing in it is decoded beyond that.

NVIDIA's own reader takes a file that was cut off without a word and gives the launches that are left (5 of 9 for one cut in half), so
the frame is checked first. "NVR\\0", then length-prefixed protobuf headers: one for the file (field 1: version), then one for each block
(field 1: programs, 2: results, 5: length of the payload that follows it). Measured on files of ncu 2025.3.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from ..model.errors import BadInput
from ..model.nearest import did_you_mean

MAGIC = b"NVR\0"
FILE_VERSION = 7
"""Of all files of ncu 2025.3; what another version holds is up to NVIDIA's reader."""
DEFAULT_MAX_BYTES = 4 << 30
_MAX_HEADER_BYTES = 64 << 20
_TOOL = re.compile(rb"(\d{4}\.\d{1,2}\.\d{1,2})\.\d+ \(build \d+\)")
_TOOL_BYTES = 4 << 20
PROFILE_AGAIN = "record it again, and copy it whole and as binary"


@dataclass(frozen=True)
class Frame:
    """What the frame says."""

    version: int
    results: int
    """Kernel results in all blocks."""
    tool: str
    """"ncu 2025.3.1"; "ncu" where the file does not say."""


def read_frame(path: Path, *, max_bytes: int = DEFAULT_MAX_BYTES) -> Frame:
    """Check that a file is a whole report. Raises BadInput: missing, empty, too large, no report, cut off."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            return _frame(path, file, size, max_bytes)
    except FileNotFoundError as error:
        raise BadInput("no_such_report", "there is no such file", where=str(path),
                       fix=did_you_mean(path, "give the path of an .ncu-rep file", suffix=".ncu-rep")) from error
    except OSError as error:
        raise BadInput("unreadable_report", f"the report can't be read: {error.strerror or error}", where=str(path),
                       fix="its rights; or copy it to another place") from error


def _frame(path: Path, file: BinaryIO, size: int, max_bytes: int) -> Frame:
    if size == 0:
        raise BadInput("empty_report", "the report is empty", where=str(path), fix=PROFILE_AGAIN)
    if size > max_bytes:
        raise BadInput("report_too_large", f"the report is larger than {max_bytes} bytes", where=str(path), fix="profile fewer launches")
    if file.read(len(MAGIC)) != MAGIC:
        raise BadInput("not_a_report", "is not an Nsight Compute report", where=str(path), fix="give a file that ncu -o wrote")
    cut = BadInput("truncated_report", f"the report is cut off or damaged (its {size} bytes are not what its blocks say)", where=str(path),
                   fix=PROFILE_AGAIN)
    try:
        version = _fields(_header(file, size)).get(1, 0)
        results = 0
        while file.tell() < size:
            block = _fields(_header(file, size))
            results += block.get(2, 0)
            if file.tell() + block.get(5, 0) > size:
                raise cut
            file.seek(block.get(5, 0), 1)
    except ValueError as error:
        raise cut from error
    file.seek(0)
    found = _TOOL.search(file.read(_TOOL_BYTES))
    return Frame(version, results, f"ncu {found[1].decode()}" if found else "ncu")


def _header(file: BinaryIO, size: int) -> bytes:
    length = file.read(4)
    if len(length) < 4:
        raise ValueError("no length")
    count: int = struct.unpack("<I", length)[0]
    if count > min(_MAX_HEADER_BYTES, size - file.tell()):
        raise ValueError("a header beyond the end")
    return file.read(count)


def _fields(message: bytes) -> dict[int, int]:
    """The whole-number fields of one protobuf message; of all others only the length matters. Raises ValueError."""
    numbers: dict[int, int] = {}
    at = 0
    while at < len(message):
        tag, at = _number(message, at)
        kind = tag & 7
        if kind == 0:
            numbers[tag >> 3], at = _number(message, at)
        elif kind == 2:
            length, at = _number(message, at)
            at += length
        elif kind in (1, 5):
            at += 8 if kind == 1 else 4
        else:
            raise ValueError("not a protobuf message")
    if at != len(message):
        raise ValueError("a field beyond the end")
    return numbers


def _number(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(message) and shift < 64:
        byte = message[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
    raise ValueError("a number without an end")

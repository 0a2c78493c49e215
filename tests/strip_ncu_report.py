"""Makes a recorded .ncu-rep small enough to be kept here: python strip_ncu_report.py IN.ncu-rep OUT.ncu-rep.xz

Leaves out the blocks that hold programs (cubins; 34 of 36 MB of an eager convolution's report) and nothing else: the result blocks stay
byte for byte, and all names, metrics and ranges that the reader gives are the same. SASS can't be read from such a file any more.
"""

from __future__ import annotations

import lzma
import struct
import sys
from pathlib import Path

from kernelwright.readers.ncu_file import MAGIC, _fields


def blocks(data: bytes) -> list[tuple[dict[int, int], bytes]]:
    """The file's header first, then every block: its header's numbers and all of its bytes."""
    assert data.startswith(MAGIC)
    at = len(MAGIC)
    found: list[tuple[dict[int, int], bytes]] = []
    while at < len(data):
        length = struct.unpack_from("<I", data, at)[0]
        numbers = _fields(data[at + 4:at + 4 + length])
        end = at + 4 + length + (numbers.get(5, 0) if found else 0)
        found.append((numbers, data[at:end]))
        at = end
    return found


def stripped(data: bytes) -> bytes:
    """The report without programs."""
    first, *rest = blocks(data)
    return MAGIC + first[1] + b"".join(block for numbers, block in rest if not numbers.get(1))


if __name__ == "__main__":
    Path(sys.argv[2]).write_bytes(lzma.compress(stripped(Path(sys.argv[1]).read_bytes()), preset=9))

"""Reports of ncu for tests: the recording, unpacked and read once a process, and launches made by hand."""

from __future__ import annotations

import atexit
import hashlib
import lzma
import shutil
import struct
import tempfile
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from kernelwright.pipeline.ncu import Selection, read_reports
from kernelwright.readers.ncu_details import Keep, read_details
from kernelwright.readers.ncu_records import Instruction, KernelDetails, NcuDetails, Rule

DATA = Path(__file__).parent / "data" / "ncu"


@lru_cache(maxsize=1)
def known_full() -> Path:
    """tests/data/ncu/known_full.ncu-rep: nine kernels with known work (`ncu --set full --import-source yes`, H200, ncu 2025.3.1)."""
    folder = Path(tempfile.mkdtemp(prefix="kernelwright-test-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    file = folder / "known_full.ncu-rep"
    file.write_bytes(lzma.decompress((DATA / "known_full.ncu-rep.xz").read_bytes()))
    return file


@lru_cache(maxsize=1)
def known_details() -> tuple[NcuDetails, ...]:
    """All of it, read in depth (about 3 s)."""
    return read_reports([known_full()])


_READ: dict[tuple[str, str], NcuDetails] = {}


def read_details_once(file: Path, keep: Keep | None = None) -> NcuDetails:
    """`read_details`, but what has the same name and the same bytes is read once a process: for tests of what is done around that."""
    key = (file.name, hashlib.sha256(file.read_bytes()).hexdigest())
    if key not in _READ:
        _READ[key] = read_details(file)
    found = _READ[key]
    return replace(found, file=file, kernels=tuple(one for one in found.kernels if keep is None or keep(one)))


def only(kernel: str) -> tuple[NcuDetails, ...]:
    """The recording with one kernel."""
    report = known_details()[0]
    return (NcuDetails(report.file, report.tool, tuple(one for one in report.kernels if one.function == kernel)),)


def selected(**choice: object) -> tuple[NcuDetails, ...]:
    """Read anew with a choice of launches."""
    return read_reports([known_full()], Selection(**choice))  # type: ignore[arg-type]


def frame(version: int = 7, results: int = 0, payload: bytes = b"", magic: bytes = b"NVR\0") -> bytes:
    """A file in the outer form of a report: header, one block."""
    header = b"\x08" + bytes([version])
    size = len(payload)
    varint = b""
    while True:
        varint += bytes([size & 0x7F | (0x80 if size > 0x7F else 0)])
        size >>= 7
        if not size:
            break
    block = b"\x08\x00\x10" + bytes([results]) + b"\x28" + varint
    return magic + struct.pack("<I", len(header)) + header + struct.pack("<I", len(block)) + block + payload


def instruction(offset: int, samples: int, *, line: int = 0, file: str = "", sass: str = "FFMA R0, R1, R2, R3", ptx: str = "",
                reason: str = "long_scoreboard", **counters: float) -> Instruction:
    """One instruction; all its samples have one reason."""
    return Instruction(offset, sass, ptx, file, line, samples, {reason: samples} if samples else {}, counters)


def rule(identifier: str, speedup: float | None, *, scope: str | None = "global", title: str = "", kind: str = "optimization",
         message: str = "Something could be better.") -> Rule:
    """One of ncu's rules."""
    return Rule(identifier, identifier, "Section", title, message, kind, speedup, scope if speedup is not None else None, ())  # type: ignore[arg-type]


def launch(function: str = "kernel", duration_ns: float | None = 1000.0, *, index: int = 0, **changes: object) -> KernelDetails:
    """A launch without metrics unless they are given."""
    values: dict[str, object] = {
        "report": "r.ncu-rep", "index": index, "name": f"{function}(float *)", "function": function, "grid": (8, 1, 1),
        "block": (128, 1, 1),
        "stream": 7, "device": 0, "duration_ns": duration_ns, "nvtx": (), "texts": {"device__attribute_display_name": "NVIDIA H200"}}
    return KernelDetails(**{**values, **changes})  # type: ignore[arg-type]


def report(*launches: KernelDetails, name: str = "r.ncu-rep") -> tuple[NcuDetails, ...]:
    """One report of these launches."""
    return (NcuDetails(Path(name), "ncu 2025.3.1", launches),)

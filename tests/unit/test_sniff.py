"""The kind of a trace file is told from what is in it."""

from __future__ import annotations

import gzip
import sqlite3
from pathlib import Path

import pytest

from kernelwright.model.errors import BadInput
from kernelwright.readers.sniff import trace_kind
from nsys_builder import NsysBuilder
from trace_builder import TraceBuilder

KINETO = Path(__file__).parents[1] / "data" / "traces" / "h200_mlp_inference" / "trace.json.gz"
REPORT = b"NVIDIA Tegra Profiler Report 1.\n\x0bLocal (CLI)\x12\x08"
"""How real reports begin."""


def test_recordings(tmp_path: Path) -> None:
    assert trace_kind(KINETO) == "kineto"
    plain = tmp_path / "looks-like.sqlite"
    plain.write_bytes(gzip.decompress(KINETO.read_bytes()))
    assert trace_kind(plain) == "kineto"
    assert trace_kind(TraceBuilder().step(0, 1).write(tmp_path / "made.txt")) == "kineto"
    assert trace_kind(NsysBuilder().step(0, 1).write(tmp_path / "trace.json")) == "nsys-sqlite"
    (tmp_path / "x.gz").write_bytes(REPORT)
    assert trace_kind(tmp_path / "x.gz") == "nsys-rep"


@pytest.mark.parametrize("contents", [
    b"", b"{", b"[]", b'["traceEvents"]', b'{"schema": 1}', b"import torch\n", REPORT[:10], b"NVIDIA", b"SQLite format 3",
    gzip.compress(b"", mtime=0), gzip.compress(b"SQLite format 3\0", mtime=0), gzip.compress(b'{"a": 1}', mtime=0),
    b"\x7fELF" + b"\0" * 100])
def test_other_files(tmp_path: Path, contents: bytes) -> None:
    (tmp_path / "trace.json").write_bytes(contents)
    assert trace_kind(tmp_path / "trace.json") is None


def test_other_databases(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "a.sqlite") as database:
        database.execute("CREATE TABLE books (id INTEGER)")
    assert trace_kind(tmp_path / "a.sqlite") is None


@pytest.mark.parametrize("contents", [
    gzip.compress(b"{" * 1000, mtime=0)[:-20], b"\x1f\x8b garbage", b"SQLite format 3\0" + b"\xff" * 5000])
def test_broken_files(tmp_path: Path, contents: bytes) -> None:
    (tmp_path / "t").write_bytes(contents)
    with pytest.raises(BadInput) as error:
        trace_kind(tmp_path / "t")
    assert error.value.code == "bad_trace" and error.value.fix


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(BadInput) as error:
        trace_kind(tmp_path / "absent.json")
    assert error.value.code == "no_trace" and error.value.fix
    with pytest.raises(BadInput):
        trace_kind(tmp_path)


def test_only_the_beginning_of_a_packed_file_is_looked_at(tmp_path: Path) -> None:
    """4 GiB of blanks would take a minute and the machine's memory."""
    bomb = tmp_path / "bomb.json.gz"
    blanks = gzip.compress(b" " * (16 << 20), 9, mtime=0)
    bomb.write_bytes(blanks * 256)
    assert trace_kind(bomb) is None

"""Broken and hostile SQLite files: one clear line, bounded work, and nothing left beside the file."""

from __future__ import annotations

import random
import sqlite3
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelwright.capture.nsys_secrets import scrub_environments
from kernelwright.model.errors import BadInput
from kernelwright.readers.nsys import read_gpus, read_nsys
from kernelwright.readers.nsys_file import open_nsys
from nsys_builder import NsysBuilder, share_one_text

PAGE = 4096


def small() -> NsysBuilder:
    made = NsysBuilder().gpu().step(0, 1000).range("aten::mm, seq = 1, op_id = 2, sizes = [[2, 2]]", 5, 90)
    return made.call(1, 10, 20).kernel("k", 100, 200, 1).memory(15, 64, 1, 1)


def refused(path: Path, code: str = "bad_trace") -> str:
    """The one line of the error that reading must give."""
    with pytest.raises(BadInput) as caught:
        read_nsys(path)
    error = caught.value
    assert error.code == code and error.exit_code == 2 and error.fix and path.name in error.where
    assert "\n" not in error.line()
    return error.line()


@pytest.mark.parametrize(("contents", "says"), [
    (b"", "not an SQLite file"), (b"{}", "not an SQLite file"), (b"SQLite format 3", "not an SQLite file"),
    (b"SQLite format 3\0", "can't be read"), (b"SQLite format 3\0" + b"\xff" * 8000, "can't be read")])
def test_other_files(tmp_path: Path, contents: bytes, says: str) -> None:
    path = tmp_path / "r.sqlite"
    path.write_bytes(contents)
    assert says in refused(path)


def test_files_that_can_t_be_opened(tmp_path: Path) -> None:
    refused(tmp_path / "absent.sqlite", "no_trace")
    (tmp_path / "folder.sqlite").mkdir()
    refused(tmp_path / "folder.sqlite")


def test_too_large_a_file(tmp_path: Path) -> None:
    path = small().write(tmp_path / "r.sqlite")
    with pytest.raises(BadInput, match="larger than 1000 bytes") as error:
        read_nsys(path, max_bytes=1000)
    assert error.value.code == "trace_too_large"


def test_truncated_files(tmp_path: Path) -> None:
    made = small()
    for number in range(400):
        made.call(number + 2, 30 + number, 31 + number).kernel(f"k{number}", 300 + number, 301 + number, number + 2)
    whole = made.write(tmp_path / "whole.sqlite").read_bytes()
    path = tmp_path / "r.sqlite"
    for size in range(PAGE, len(whole) - PAGE, 3 * PAGE + 1000):
        path.write_bytes(whole[:size])
        refused(path)


def test_damaged_files_are_read_or_refused(tmp_path: Path) -> None:
    """Some bytes of a good file changed: nothing but BadInput may come of it."""
    whole = small().write(tmp_path / "whole.sqlite").read_bytes()
    path, chance = tmp_path / "r.sqlite", random.Random(6)
    seen = set()
    for _ in range(250):
        data = bytearray(whole)
        for _ in range(chance.choice((1, 3, 30))):
            data[chance.randrange(16, len(data))] = chance.randrange(256)
        path.write_bytes(data)
        try:
            read_nsys(path)
            seen.add("read")
        except BadInput as error:
            seen.add(error.code)
    assert {"read", "bad_trace"} <= seen


def test_other_databases(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE books (id INTEGER)")
    assert "no Nsight Systems export" in refused(path)


@pytest.mark.parametrize("generation", [2022, 2025])
def test_no_events(tmp_path: Path, generation: int) -> None:
    assert "neither CUDA work nor NVTX ranges" in refused(NsysBuilder().gpu().write(tmp_path / "r.sqlite", generation), "empty_trace")


SCHEMAS = {
    "view": "CREATE VIEW NVTX_EVENTS AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x AS start FROM n",
    "virtual table": "CREATE VIRTUAL TABLE NVTX_EVENTS USING fts5(start, end, eventType)",
    "computed column": "CREATE TABLE NVTX_EVENTS (start INTEGER, eventType INTEGER, end INTEGER AS (start + 1))",
    "missing column": "CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER)",
}


@pytest.mark.parametrize("kind", SCHEMAS)
def test_schemas_of_no_export(tmp_path: Path, kind: str) -> None:
    path = NsysBuilder().call(1, 1, 2).write(tmp_path / "r.sqlite")
    with sqlite3.connect(path) as database:
        database.execute(SCHEMAS[kind])
    assert "table NVTX_EVENTS" in refused(path)


def test_a_kernel_table_without_its_columns(tmp_path: Path) -> None:
    path = NsysBuilder().call(1, 1, 2).write(tmp_path / "r.sqlite")
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, shortName INTEGER)")
    assert "table CUPTI_ACTIVITY_KIND_KERNEL has no column deviceId" in refused(path)


Spoil = Callable[[NsysBuilder], object]
VALUES: dict[str, tuple[Spoil, str]] = {
    "kernel ends before it starts": (lambda made: made.kernel("k", 300, 250, 1), "(table CUPTI_ACTIVITY_KIND_KERNEL, row 2: -50 ns)"),
    "call ends before it starts": (lambda made: made.call(2, 300, 299), "(table CUPTI_ACTIVITY_KIND_RUNTIME, row 2: -1 ns)"),
    "range ends before it starts": (lambda made: made.range("r", 300, 299), "negative duration (table NVTX_EVENTS"),
    "2^63 - 1": (lambda made: made.kernel("k", 300, 2**63 - 1, 1), "beyond int64 nanoseconds"),
    "-2^63": (lambda made: made.range("r", -(2**63), 5), "beyond int64 nanoseconds"),
    "never ended, from -2^63": (lambda made: made.range("r", -(2**63), None), "beyond int64 nanoseconds"),
    "memory at 2^63": (lambda made: made.memory(2**63 - 1, 1, 1, 1), "beyond int64 nanoseconds"),
    "a clock jump": (lambda made: made.call(2, 1_700_000_000 * 10**9, 1_700_000_001 * 10**9), "19,676 days apart"),
    "text for a time": (lambda made: made.add("NVTX_EVENTS", start="soon", end=4, eventType=59, text="r"), "no integer"),
    "text for a number": (lambda made: made.call(2, 300, 310).add("CUPTI_ACTIVITY_KIND_RUNTIME", start=1, end=2, nameId="x"), "no integer"),
    "NULL for a time": (lambda made: made.add("CUPTI_ACTIVITY_KIND_RUNTIME", end=2, nameId=3), "no integer"),
    "infinity": (lambda made: made.add("CUPTI_ACTIVITY_KIND_RUNTIME", start=1, end=float("inf"), nameId=3), "no integer"),
    "a negative allocation": (lambda made: made.memory(16, -5, 1, 1), "size that can't be right"),
    "2^62 bytes": (lambda made: made.memory(16, 2**61, 1, 1).memory(17, 2**61, 2, 1), "size that can't be right"),
}


@pytest.mark.parametrize("kind", VALUES)
def test_values_that_can_t_be_right(tmp_path: Path, kind: str) -> None:
    spoil, says = VALUES[kind]
    made = small()
    spoil(made)
    assert says in refused(made.write(tmp_path / "r.sqlite"))


def test_odd_values_that_do_no_harm(tmp_path: Path) -> None:
    made = small().range("r, op_id = -4", 20, 30).range("aten::x, seq = 99999999999999999999999, op_id = 4, sizes = [[1", 40, 50)
    made.range("aten::y, op_id = 5, sizes = " + "[" * 100_000, 51, 52)
    made.range("aten::z, op_id = 5, sizes = " + "[" * 5000 + "]" * 5000, 53, 54)
    made.range("\x00\x1b[31m", 55, 56).range("x" * 3_000_000, 57, 58).range("", 59, 60)
    made.kernel("odd", 300, 310, 2**62, gridX=-5, registersPerThread=-1, staticSharedMemory=2**62, dynamicSharedMemory=2**62)
    made.kernel("nobody's", 300, 310, None).copy(400, 410, 0, kind=-1, source=99, target=-7, size=-1)
    made.add("CUPTI_ACTIVITY_KIND_KERNEL", start=500, end=510, deviceId=-3, streamId=-9, demangledName=10**15, shortName=5)
    made.add("NVTX_EVENTS", start=600, end=700, eventType=59, textId=10**15).add("NVTX_EVENTS", start=1, eventType=-7, text="mark")
    made.add("NVTX_EVENTS", start=610, end=620, eventType=59, text=b"\xff\xfe\x00", globalTid=-1)
    made.add("TARGET_INFO_GPU", id="many", name=4, smCount="x").add("TARGET_INFO_GPU", id=10**9, name=None, smCount=-1)
    path = made.write(tmp_path / "r.sqlite")
    trace, _ = read_nsys(path)
    assert {"odd", "nobody's", "(name 1000000000000000)"} <= set(trace.device.names) and "(name " not in str(trace.ranges.names)
    assert "Memcpy Unknown (Unknown -> Unknown)" in trace.device.names
    assert all(details["dims"] in ([[2, 2]], []) for details in trace.operators.args)
    assert trace.device_names[0] == "NVIDIA H200" and len(read_gpus(path)) == 2


def test_pages_that_are_pointed_to_again_and_again(tmp_path: Path) -> None:
    """A few pages that SQLite reads as millions of rows: a tree whose branches all lead to the same leaf."""
    path = tmp_path / "r.sqlite"
    made = small()
    for number in range(3000):
        made.call(number + 2, 30 + number, 31 + number)
    data = bytearray(made.write(path).read_bytes())
    with sqlite3.connect(path) as database:
        root = database.execute("SELECT rootpage FROM sqlite_master WHERE name = 'CUPTI_ACTIVITY_KIND_RUNTIME'").fetchone()[0]
    at = (root - 1) * PAGE
    assert data[at] == 5, "an inner page"
    cells = struct.unpack_from(">H", data, at + 3)[0]
    pointers = struct.unpack_from(f">{cells}H", data, at + 12)
    leaf = data[at + pointers[0]:at + pointers[0] + 4]
    inner = len(data) // PAGE + 1
    page = data[at:at + PAGE]
    for cell in pointers:
        page[cell:cell + 4] = leaf
        data[at + cell:at + cell + 4] = struct.pack(">I", inner)
    page[8:12], data[at + 8:at + 12] = leaf, struct.pack(">I", inner)
    data += page
    data[28:32] = struct.pack(">I", inner)
    path.write_bytes(data)
    with sqlite3.connect(path) as database:
        counted = database.execute("SELECT count(*) FROM CUPTI_ACTIVITY_KIND_RUNTIME").fetchone()[0]
    assert counted > len(data) // 8, "the file must hold more rows than it has room for"
    assert "more rows than the file has room for" in refused(path)


def test_a_text_that_many_rows_share(tmp_path: Path) -> None:
    """1 MB of file that reads as 200 MB of text: it is given up after a few of its rows."""
    path = small().write(tmp_path / "r.sqlite")
    share_one_text(path, 200, 1_000_000)
    size = path.stat().st_size
    with sqlite3.connect(path) as database:
        assert database.execute("SELECT sum(length(value)) FROM StringIds").fetchone()[0] > 100 * size
    given: list[int] = []
    tracemalloc.start()
    with open_nsys(path, 1 << 30) as file, pytest.raises(BadInput, match="more text than it has room for"):
        counted = file._counted
        file._connection.text_factory = lambda text: (given.append(len(text)), counted(text))[1]
        file.texts({1})
    assert "more text than it has room for" in refused(path)
    assert tracemalloc.get_traced_memory()[1] < 8 * size and 10**6 <= sum(given) < 4 * size
    tracemalloc.reset_peak()
    with pytest.raises(BadInput) as error:
        scrub_environments(path)
    assert error.value.code == "not_nsys_sqlite" and tracemalloc.get_traced_memory()[1] < 8 * size and path.stat().st_size == size
    tracemalloc.stop()


@pytest.mark.skipif(not hasattr(sqlite3.Connection, "setlimit"), reason="SQLite's limits can't be set before Python 3.11")
def test_blobs_where_numbers_belong(tmp_path: Path) -> None:
    path = small().add("CUPTI_ACTIVITY_KIND_RUNTIME", start=b"a" * 5000, end=2, nameId=3).write(tmp_path / "r.sqlite")
    assert "too big" in refused(path)


def test_memory_stays_bounded(tmp_path: Path) -> None:
    made = small()
    for number in range(5_000):
        made.call(number + 2, 30 + number, 31 + number).kernel("k", 30 + number, 31 + number, number + 2)
    path = made.write(tmp_path / "r.sqlite")
    tracemalloc.start()
    read_nsys(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 12 * path.stat().st_size


def test_nothing_is_left_beside_the_file(tmp_path: Path) -> None:
    path = small().write(tmp_path / "50% #1?.sqlite")
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA journal_mode = WAL")
    database.close()
    before, contents = sorted(tmp_path.iterdir()), path.read_bytes()
    read_nsys(path)
    assert sorted(tmp_path.iterdir()) == before and path.read_bytes() == contents


def test_triggers_do_nothing(tmp_path: Path) -> None:
    path = small().write(tmp_path / "r.sqlite")
    with sqlite3.connect(path) as database:
        database.execute("CREATE TRIGGER t AFTER INSERT ON NVTX_EVENTS BEGIN DELETE FROM StringIds; END")
    assert len(read_nsys(path)[0].steps) == 1

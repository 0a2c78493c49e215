"""The cache of large traces: the same tables, without reading; bounded, and never in the way."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernelwright.model.table import EventTable, RowDetails
from kernelwright.model.trace import Trace
from kernelwright.readers import cache
from kernelwright.readers.arrow import Unfit, read_traces, write_traces
from kernelwright.readers.cache import cached, cached_kineto
from kernelwright.readers.kineto import read_kineto
from trace_builder import TraceBuilder

pytest.importorskip("pyarrow", reason="there is no pyarrow for some platforms, and then no cache")
TRACES = Path(__file__).parents[1] / "data" / "traces"
SOURCE = Path(__file__).parents[2] / "src"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where entries land; every file is large enough for one, and old enough to be trusted."""
    monkeypatch.setenv("KERNELWRIGHT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv(cache.LIMIT_VARIABLE, raising=False)
    monkeypatch.setattr(cache, "MIN_BYTES", 1)
    monkeypatch.setattr(cache, "_SETTLED_NS", -(10**12))
    yield tmp_path / "cache" / "traces"


class Reader:
    """Counts its readings."""

    def __init__(self, path: Path) -> None:
        self.path, self.count = path, 0

    def __call__(self) -> tuple[Trace, ...]:
        self.count += 1
        return (read_kineto(self.path, need_steps=False),)

    def cached(self, version: str = "1") -> Trace:
        trace = cached(self.path, self, version=version)[0]
        assert trace is not None
        return trace


def a_trace(path: Path, name: str = "aten::a") -> Path:
    builder = TraceBuilder().step(0, 1000).op(name, 1, 9, Input_Dims=[[2, 3], []], Input_type=["float", "Scalar"]).memory(5, 4, 4, 1)
    return builder.launch(3, 5, 9).kernel("k", 20, 90, 3).write(path)


def plain(value: Any) -> Any:
    """Comparable with ==."""
    if dataclasses.is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return value.tolist() if isinstance(value, np.ndarray) else list(value) if isinstance(value, (RowDetails, list, tuple)) else value


def entries(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.arrow"))


@pytest.mark.parametrize("path", sorted(TRACES.glob("*/*.json.gz")), ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_real_recordings_come_back_as_they_were(path: Path, tmp_path: Path) -> None:
    trace = read_kineto(path)
    write_traces(tmp_path / "t.arrow", [trace, None])
    again, nothing = read_traces(tmp_path / "t.arrow")
    assert nothing is None and plain(again) == plain(trace)
    assert isinstance(again, Trace) and all(getattr(again, name).start_ns.dtype == np.int64 for name in ("device", "operators", "steps"))


def test_details_in_any_form_come_back(tmp_path: Path) -> None:
    """As other readers keep them: a dict a row, or none."""
    trace = read_kineto(a_trace(tmp_path / "t.json"))
    device = dataclasses.replace(trace.device, args=({"category": "kernel", "grid": [1, 2, 3], "bytes": -1},))
    operators = dataclasses.replace(trace.operators, args=())
    write_traces(tmp_path / "t.arrow", [dataclasses.replace(trace, device=device, operators=operators, recorder="nsys", rank=3)])
    again = read_traces(tmp_path / "t.arrow")[0]
    assert again is not None and list(again.device.args) == list(device.args) and list(again.operators.args) == []
    assert (again.recorder, again.rank, again.world_size, again.device_names) == ("nsys", 3, None, ("NVIDIA H200",))


def test_details_that_are_no_json_are_not_kept(tmp_path: Path, folder: Path) -> None:
    trace = read_kineto(a_trace(tmp_path / "t.json"))
    odd = dataclasses.replace(trace, device=dataclasses.replace(trace.device, args=({"grid": b"bytes"},)))
    with pytest.raises(Unfit):
        write_traces(tmp_path / "t.arrow", [odd])
    assert cached(tmp_path / "t.json", lambda: (odd,), version="1")[0] is odd and not list(folder.glob(".*"))


def test_the_second_reading_reads_nothing(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Reader(a_trace(tmp_path / "t.json"))
    first = reader.cached()
    monkeypatch.setattr(cache, "_hashed", lambda path: pytest.fail("an unchanged file was read to find its entry"))
    second = reader.cached()
    assert reader.count == 1 and plain(first) == plain(second) and len(entries(folder)) == 1
    if os.name == "posix":
        assert folder.stat().st_mode & 0o077 == 0 and entries(folder)[0].stat().st_mode & 0o077 == 0, "nobody else reads the user's traces"


def test_a_copy_is_found_by_what_it_holds_and_keeps_its_name(tmp_path: Path, folder: Path) -> None:
    reader = Reader(a_trace(tmp_path / "t.json"))
    reader.cached()
    copy = tmp_path / "copy.json"
    copy.write_bytes((tmp_path / "t.json").read_bytes())
    trace = cached(copy, reader, version="1")[0]
    assert reader.count == 1 and trace is not None and trace.source == "copy.json"


def test_another_content_or_reader_is_read_anew(tmp_path: Path, folder: Path) -> None:
    reader = Reader(a_trace(tmp_path / "t.json"))
    times = reader.path.stat()
    assert reader.cached().operators.names == ("aten::a",)
    a_trace(tmp_path / "t.json", "aten::b")
    os.utime(tmp_path / "t.json", ns=(times.st_atime_ns, times.st_mtime_ns))
    assert reader.cached().operators.names == ("aten::b",), "same size and time, but another content"
    reader.cached("2")
    assert reader.count == 3 and len(entries(folder)) == 3


def test_a_file_that_has_just_changed_is_hashed_each_time(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_SETTLED_NS", 2 * 10**9)
    Reader(a_trace(tmp_path / "t.json")).cached()
    assert entries(folder) and not list(folder.glob("*.seen"))


def test_options_are_told_apart(tmp_path: Path, folder: Path) -> None:
    path = TraceBuilder().step(0, 1000).range("mine", 10, 90).op("aten::a", 20, 30).write(tmp_path / "t.json")
    for _ in range(2):
        assert cached_kineto(path).steps_from == "kernelwright" and cached_kineto(path, steps_range="mine").steps_from == "range"
    assert len(entries(folder)) == 2


@pytest.mark.parametrize("damage", [lambda data: data[:-100], lambda data: b"", lambda data: b"noise" * 99, lambda data: data[:900],
                                    lambda data: data.replace(b"aten::a", b"aten::z"), lambda data: b"\0" * len(data)])
def test_damaged_entries_are_made_anew(tmp_path: Path, folder: Path, damage: Any) -> None:
    reader = Reader(a_trace(tmp_path / "t.json"))
    reader.cached()
    entry = entries(folder)[0]
    whole = entry.read_bytes()
    assert damage(whole) != whole
    entry.write_bytes(damage(whole))
    assert reader.cached().operators.names == ("aten::a",) and reader.count == 2
    assert reader.cached() and reader.count == 2, "the new entry is good"


def test_any_changed_byte_is_noticed(tmp_path: Path) -> None:
    trace = read_kineto(a_trace(tmp_path / "t.json"))
    path = tmp_path / "t.arrow"
    write_traces(path, [trace])
    data, expected = path.read_bytes(), plain(trace)
    for place in range(0, len(data), 101):
        path.write_bytes(data[:place] + bytes([data[place] ^ 0x55]) + data[place + 1:])
        try:
            found = read_traces(path)[0]
        except (Unfit, OSError):
            continue
        assert plain(found) == expected, f"byte {place} is padding, or the reading is wrong"


def test_the_least_recently_used_entries_make_room(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    readers = [Reader(a_trace(tmp_path / f"{number}.json", f"aten::{number}")) for number in range(4)]
    for number, reader in enumerate(readers[:3]):
        reader.cached()
        newest = max(entries(folder), key=lambda path: path.stat().st_mtime_ns)
        os.utime(newest, (number, number))
    readers[0].cached()
    size = entries(folder)[0].stat().st_size
    monkeypatch.setattr(cache, "limit_bytes", lambda: int(2.5 * size))
    readers[3].cached()
    assert len(entries(folder)) == 2 and [reader.count for reader in readers] == [1] * 4
    for number, count in ((0, 1), (3, 1), (1, 2)):
        readers[number].cached()
        assert readers[number].count == count, number


@pytest.mark.parametrize("setting", ["0", "off-by-size"])
def test_it_can_be_off_and_is_only_for_large_files(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, setting: str) -> None:
    if setting == "0":
        monkeypatch.setenv(cache.LIMIT_VARIABLE, setting)
    else:
        monkeypatch.setattr(cache, "MIN_BYTES", 16 << 20)
    reader = Reader(a_trace(tmp_path / "t.json"))
    reader.cached()
    reader.cached()
    assert reader.count == 2 and not folder.exists()


def test_where_nothing_can_be_written_traces_are_just_read(tmp_path: Path, folder: Path) -> None:
    folder.parent.write_text("a file where the folder should be")
    reader = Reader(a_trace(tmp_path / "t.json"))
    assert reader.cached().operators.names == ("aten::a",) and reader.count == 1


def test_what_a_killed_process_left_goes_away(tmp_path: Path, folder: Path) -> None:
    folder.mkdir(parents=True)
    left, writing = folder / ".x.1.partial", folder / ".x.2.partial"
    for path in (left, writing):
        path.write_text("half")
    os.utime(left, (time.time() - 10**6,) * 2)
    Reader(a_trace(tmp_path / "t.json")).cached()
    assert not left.exists() and writing.exists() and len(entries(folder)) == 1


def test_pyarrow_is_not_loaded_before_it_is_needed() -> None:
    code = ("import sys, kernelwright.cli, kernelwright.readers.cache, kernelwright.pipeline.assemble; "
            "sys.exit('pyarrow' in sys.modules)")
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": os.pathsep.join([str(SOURCE), *sys.path[1:]])})
    assert done.returncode == 0


def test_rows_can_be_taken_out_of_a_table(tmp_path: Path) -> None:
    table: EventTable = read_kineto(a_trace(tmp_path / "t.json")).device
    taken = table.take(np.array([0, 0], dtype=np.int64))
    assert [taken.name(row) for row in (0, 1)] == ["k", "k"] and list(taken.args) == [table.args[0]] * 2
    assert list(dataclasses.replace(table, args=({"a": 1},)).take(np.array([0], dtype=np.int64)).args) == [{"a": 1}]

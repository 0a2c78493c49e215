"""Kineto traces: exact nanoseconds, tables, and one clear line for files that are not traces."""

from __future__ import annotations

import dataclasses
import gc
import gzip
import json
import tracemalloc
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelwright.model.errors import BadInput, KernelwrightError
from kernelwright.model.trace import Trace
from kernelwright.readers import packed
from kernelwright.readers.kineto import read_kineto
from kernelwright.readers.kineto_collector import Collector
from kernelwright.readers.kineto_document import read_document
from kernelwright.readers.kineto_stream import OtherLayout, read_parts
from kernelwright.readers.kineto_times import are_plain, nanoseconds, rounded_ns
from property_examples import examples
from trace_builder import BASE_NS, TraceBuilder

TRACES = Path(__file__).parents[1] / "data" / "traces"


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_single_nanoseconds_survive_where_float64_loses_them(tmp_path: Path) -> None:
    trace = TraceBuilder().step(0, 1000).op("aten::a", 1, 2).op("aten::b", 3, 4).op("aten::c", 4, 999)
    assert round((BASE_NS + 1) / 1000 * 1000) != BASE_NS + 1, "the test's times must be beyond float64"
    read = read_kineto(trace.write(tmp_path / "t.json"))
    assert read.operators.start_ns.tolist() == [1, 3, 4]
    assert read.operators.end_ns.tolist() == [2, 4, 999]


def test_the_real_recordings_keep_every_digit() -> None:
    for path in TRACES.glob("*/trace.json.gz"):
        document = json.loads(gzip.decompress(path.read_bytes()), parse_float=str, parse_int=str)
        steps = [event for event in document["traceEvents"]
                 if event.get("name") == "kernelwright.step" and event["cat"] == "user_annotation"]
        ops = [event for event in document["traceEvents"] if event.get("cat") == "cpu_op"]

        def nanoseconds(text: str) -> int:
            whole, _, part = text.partition(".")
            return int(whole) * 1000 + int(part.ljust(3, "0"))

        origin = min(nanoseconds(step["ts"]) for step in steps)
        expected = sorted(nanoseconds(op["ts"]) - origin for op in ops)
        read = read_kineto(path)
        assert sorted(read.operators.start_ns.tolist()) == expected
        assert int(read.operators.duration_ns.sum()) == sum(nanoseconds(op["dur"]) for op in ops)


def test_tables_hold_what_the_analysis_needs(tmp_path: Path) -> None:
    builder = (TraceBuilder().op("warm-up", -500, -400).step(0, 1000).range("stage:a", 10, 900)
               .op("aten::mm", 20, 100, Input_Dims=[[2, 3], []], Input_type=["float", "Scalar"], Sequence_number=5, Fwd_thread_id=0)
               .launch(9, 30, 40).kernel("gemm", 50, 90, 9).kernel("Memcpy HtoD", 95, 99, 10, category="gpu_memcpy", stream=20)
               .event("python_function", "m.py(3): forward", 5, 950))
    read = read_kineto(builder.write(tmp_path / "t.json.gz"))
    assert read.is_cuda and read.device_names == ("NVIDIA H200",)
    assert [read.device.name(row) for row in range(len(read.device))] == ["gemm", "Memcpy HtoD"]
    assert read.device.correlation.tolist() == [9, 10] and read.device.stream.tolist() == [7, 20]
    assert [args["category"] for args in read.device.args] == ["kernel", "memcpy"]
    assert read.runtime.process.tolist() == [100] and len(read.ranges) == 1 and len(read.steps) == 1 and len(read.python) == 1
    assert read.operators.start_ns.tolist() == [-500, 20], "times count from the first step; earlier ones are negative"
    assert read.operators.args[1]["sequence"] == 5 and read.operators.args[1]["dims"] == [[2, 3], []]


def test_a_trace_without_device_work_is_a_cpu_trace(tmp_path: Path) -> None:
    read = read_kineto(TraceBuilder(device="").step(0, 10).op("aten::a", 1, 2).write(tmp_path / "t.json"))
    assert not read.is_cuda and read.device_names == ()


@pytest.mark.parametrize(("text", "code"), [
    ("", "bad_trace"),
    ("not json", "bad_trace"),
    ("[1, 2]", "bad_trace"),
    ('{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "a", "ts": 1', "bad_trace"),
    ("{}", "empty_trace"),
    ('{"traceEvents": []}', "empty_trace"),
    (TraceBuilder().op("aten::a", 1, 2).text(), "no_steps"),
    (TraceBuilder().step(0, 10).op("aten::a", 5, 3).text(), "bad_trace"),
    ('{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "a"}]}', "bad_trace"),
    ('{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "a", "ts": 1e300, "dur": 1}]}', "bad_trace"),
    ('{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "a", "ts": 1, "dur": 1, "args": {"correlation": "x"}}]}', "bad_trace"),
    (TraceBuilder().step(0, 10).event("kernel", "k", 1, 2, stream=10**20).text(), "bad_trace"),
    (TraceBuilder().step(0, 10).op("aten::a", 1, 2, pid=-10**30).text(), "bad_trace"),
    ('{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "a", "ts": "NaN", "dur": 1}]}', "bad_trace"),
])
def test_files_that_are_no_traces_give_one_clear_line(tmp_path: Path, text: str, code: str) -> None:
    with pytest.raises(BadInput) as caught:
        read_kineto(write(tmp_path / "t.json", text))
    assert caught.value.code == code and caught.value.exit_code == 2
    assert caught.value.fix and "\n" not in caught.value.line() and len(caught.value.line()) < 500


def test_missing_truncated_and_bomb_files(tmp_path: Path) -> None:
    with pytest.raises(BadInput) as missing:
        read_kineto(tmp_path / "none.json")
    assert missing.value.code == "no_trace"
    whole = TraceBuilder().step(0, 10).write(tmp_path / "t.json.gz").read_bytes()
    (tmp_path / "cut.json.gz").write_bytes(whole[:-20])
    (tmp_path / "noise.json.gz").write_bytes(b"\x1f\x8b" + b"noise" * 30)
    for name in ("cut.json.gz", "noise.json.gz"):
        with pytest.raises(BadInput) as broken:
            read_kineto(tmp_path / name)
        assert broken.value.code == "bad_trace"
    bomb = tmp_path / "bomb.json.gz"
    bomb.write_bytes(gzip.compress(b" " * 50_000_000))
    with pytest.raises(BadInput) as large:
        read_kineto(bomb, max_bytes=1_000_000)
    assert large.value.code == "trace_too_large"


@given(st.data())
@examples(60)
def test_damaged_traces_never_end_in_a_traceback(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    text = bytearray(TraceBuilder().step(0, 100).op("aten::a", 1, 50).launch(3, 5, 9).kernel("k", 10, 20, 3).text().encode())
    for _ in range(data.draw(st.integers(1, 4))):
        text[data.draw(st.integers(0, len(text) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.mktemp("damaged") / "t.json"
    path.write_bytes(bytes(text))
    try:
        read_kineto(path)
    except KernelwrightError as error:
        assert error.exit_code == 2


# -- the quick way gives what the slow one gives ---------------------------------------------------------------------------


def whole(data: bytes) -> Trace:
    collector = Collector("t.json")
    return collector.trace(read_document(pieces(data, 1 << 20), collector))


def in_parts(data: bytes, size: int) -> Trace:
    collector = Collector("t.json")
    return collector.trace(read_parts(pieces(data, size), collector))


def pieces(data: bytes, size: int) -> Iterator[bytes]:
    return (data[at:at + size] for at in range(0, len(data), size))


def plain(value: Any) -> Any:
    """Comparable with ==."""
    if dataclasses.is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return value.tolist() if isinstance(value, np.ndarray) else list(value) if isinstance(value, (list, tuple)) else (
        list(value) if type(value).__name__ == "RowDetails" else value)


@pytest.mark.parametrize("path", sorted(TRACES.glob("*/*.json.gz")), ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_recordings_read_in_parts_are_as_read_whole(path: Path) -> None:
    data = gzip.decompress(path.read_bytes())
    expected = plain(whole(data))
    for size in (5_000, 1 << 20):
        assert plain(in_parts(data, size)) == expected


TRICKY = st.sampled_from([
    "aten::a", 'a "b"', "a}, {\"ph\": [", "stage:x", "kernelwright.line:3", "\u00fc\U0001f525", '"traceEvents": [', "\\", "",
])
TIMES = st.integers(0, 2_000)


@st.composite
def traces(draw: st.DrawFn) -> str:
    builder = TraceBuilder().step(0, 1000)
    for _ in range(draw(st.integers(0, 12))):
        start, name = draw(TIMES), draw(TRICKY)
        end, number = start + draw(TIMES), draw(st.integers(-2, 5))
        kind = draw(st.integers(0, 6))
        if kind == 0:
            builder.op(name, start, end, Input_Dims=[[number, 2], []], Input_type=["float", name], Sequence_number=number)
        elif kind == 1:
            builder.kernel(name, start, end, number, grid=(number, 1, 1), category=draw(st.sampled_from(["kernel", "gpu_memset"])))
        elif kind == 2:
            builder.range(name, start, end)
        elif kind == 3:
            builder.memory(start, number, 100, number)
        elif kind == 4:
            builder.event(draw(st.sampled_from(["python_function", "overhead", "ac2g"])), name, start, end, tid=number)
        elif kind == 5:
            builder.launch(number, start, end, name=name)
        else:
            builder.events.append(json.dumps({"ph": "M", "name": "process_name", "args": {"name": name}, "pid": name, "ts": 1.5}))
    order = draw(st.permutations(builder.events))
    builder.events = list(order)
    return builder.text()


@given(text=traces(), size=st.integers(40, 900))
@examples(60)
def test_any_trace_read_in_parts_is_as_read_whole(text: str, size: int) -> None:
    assert plain(in_parts(text.encode(), size)) == plain(whole(text.encode()))


@given(text=traces(), size=st.integers(40, 900), data=st.data())
@examples(100)
def test_a_damaged_trace_read_in_parts_is_as_read_whole_or_left_to_it(text: str, size: int, data: st.DataObject) -> None:
    damaged = bytearray(text.encode())
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.sampled_from(list(b' "{}[],:-.0e1nX\\\xff')))
    try:
        found = plain(in_parts(bytes(damaged), size))
    except (OtherLayout, BadInput):
        return
    assert found == plain(whole(bytes(damaged)))


@pytest.mark.parametrize("change", [
    lambda text: json.dumps(json.loads(text, parse_float=lambda number: f"@{number}@"), indent=1).replace('"@', "").replace('@"', ""),
    lambda text: text.replace('{"ph": "X", ', "{").replace('"pid"', '"ph": "X", "pid"'),
    lambda text: text.replace('"traceEvents"', '"x": {"traceEvents": [{"ph": "X", "cat": "cpu_op"}, {"ph": "X"}]}, "traceEvents"'),
    lambda text: text.replace('"traceName"', '"other": [{"ph": "X"}, {"ph": "X", "cat": "cpu_op"}], "traceName"'),
    lambda text: text.replace('{"ph": "X"', '{"ph": "M", "args": {"stream": "x"}, "ts": "1"}, {"ph": "X"', 1),
    lambda text: text.replace("\"args\": {", '"args": {"nested": [{"ph": 1}, {"ph": 2}], '),
], ids=["pretty", "other-order", "events-inside", "events-behind", "odd-metadata", "nested"])
def test_other_layouts_are_read_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Any) -> None:
    builder = TraceBuilder().step(0, 1000)
    for number in range(30):
        builder.op("aten::a", 10 * number, 10 * number + 5).launch(number, 10 * number, 10 * number + 4).kernel("k", 50, 90, number)
    text = change(builder.text())
    monkeypatch.setattr(packed, "CHUNK_BYTES", 700)
    read = read_kineto(write(tmp_path / "t.json", text))
    assert plain(read) == plain(whole(text.encode())) and len(read.operators) == 30 and len(read.device) == 30


def test_an_error_in_a_late_part_names_the_event_s_place_in_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    builder = TraceBuilder().step(0, 1000)
    for number in range(50):
        builder.op("aten::a", 10 * number, 10 * number + 5)
    monkeypatch.setattr(packed, "CHUNK_BYTES", 700)
    with pytest.raises(BadInput, match="negative duration") as caught:
        read_kineto(builder.op("aten::late", 9, 3).op("aten::b", 9, 12).write(tmp_path / "t.json"))
    assert "event 51 (aten::late)" in caught.value.where


def test_memory_follows_the_columns_not_the_text(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 10**6)
    for number in range(20_000):
        builder.op(f"aten::{number % 50}", 10 * number, 10 * number + 5, Input_Dims=[[number % 7, 2]], note="x" * 300)
    path = builder.write(tmp_path / "t.json")
    del builder
    read_kineto(path)
    assert gc.isenabled()
    tracemalloc.start()
    try:
        read = read_kineto(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(read.operators) == 20_000 and read.operators.args[-1]["dims"] == [[19_999 % 7, 2]]
    assert peak < path.stat().st_size, "less than the text alone"


# -- times -----------------------------------------------------------------------------------------------------------------

NUMBERS = st.one_of(
    st.integers(-(4 * 10**18) + 1, 4 * 10**18 - 1).map(lambda ns: f"{'-' if ns < 0 else ''}{abs(ns) // 1000}.{abs(ns) % 1000:03d}"),
    st.integers(-(10**15), 10**15).map(str), st.decimals(-(10**15), 10**15, places=1).map(str),
    st.decimals(-(10**9), 10**9, places=7).map("{:f}".format))


@given(texts=st.lists(NUMBERS, max_size=20))
@examples(100)
def test_times_are_those_of_decimal(texts: list[str]) -> None:
    written = [text.encode() for text in texts]
    assert are_plain(written)
    assert nanoseconds(written).tolist() == [rounded_ns(Decimal(text)) for text in texts]


@pytest.mark.parametrize("text", ["", "1e3", "1.5E3", '"1.234"', "null", "NaN", "4000000000000000.000", "-4000000000000000", "9" * 30,
                                  "9" * 5000, "99999999999999999999.000"])
def test_what_is_no_plain_time_is_refused(text: str) -> None:
    for texts in ([text], ["1.000", text], [text, "2"]):
        with pytest.raises(ValueError):
            nanoseconds([one.encode() for one in texts])

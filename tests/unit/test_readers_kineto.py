"""Kineto traces: exact nanoseconds, tables, and one clear line for files that are not traces."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelwright.model.errors import BadInput, KernelwrightError
from kernelwright.readers.kineto import read_kineto
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
@settings(max_examples=150, deadline=None)
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

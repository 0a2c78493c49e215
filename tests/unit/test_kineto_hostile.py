"""Traces that are broken or made to harm: one line, exit 2, and memory within bounds."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelwright.model.errors import BadInput
from kernelwright.readers import kineto_collector, packed
from kernelwright.readers.kineto import read_kineto
from kernelwright.readers.kineto_mend import mended
from kernelwright.readers.kineto_split import Malformed, Splitter
from property_examples import examples
from trace_builder import TraceBuilder

DAY_NS = 24 * 3600 * 10**9
EVENT = '{"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "ts": 1.000, "dur": 1.000}'
STEP = '{"ph": "X", "cat": "user_annotation", "name": "kernelwright.step", "pid": 1, "tid": 1, "ts": 0.000, "dur": 9.000}'


def refused(path: Path, code: str = "bad_trace") -> BadInput:
    with pytest.raises(BadInput) as caught:
        read_kineto(path, need_steps=False)
    assert caught.value.code == code and caught.value.exit_code == 2 and caught.value.fix
    assert "\n" not in caught.value.line() and len(caught.value.line()) < 500
    return caught.value


def test_clocks_that_jumped(tmp_path: Path) -> None:
    far = TraceBuilder().step(0, 1000).op("aten::a", 1, 9).op("aten::b", 8 * DAY_NS, 8 * DAY_NS + 1)
    assert "8.0 days apart" in refused(far.write(tmp_path / "far.json")).message
    back = TraceBuilder().step(0, 1000).launch(3, 5 * 10**9, 5 * 10**9 + 9).kernel("k", 100, 200, 3)
    assert "5.0 s before the call" in refused(back.write(tmp_path / "back.json")).message
    memory = TraceBuilder().step(0, 1000).memory(-9 * DAY_NS, 4, 4, 1)
    assert "days apart" in refused(memory.write(tmp_path / "memory.json")).message


def test_clocks_that_are_a_little_apart_are_not_refused(tmp_path: Path) -> None:
    early = TraceBuilder().step(0, 1000).launch(3, 50_000, 50_009).kernel("k", 100, 200, 3).event("overhead", "o", 0, 99 * DAY_NS)
    assert len(read_kineto(early.write(tmp_path / "t.json")).device) == 1
    twice = TraceBuilder().step(0, 1000).launch(3, 0, 9).launch(3, 5 * 10**9, 5 * 10**9 + 9, pid=7).kernel("k", 100, 200, 3)
    assert len(read_kineto(twice.write(tmp_path / "t.json")).device) == 1, "an id of two calls says nothing"


@pytest.mark.parametrize("text", [
    '{"traceEvents": [' + EVENT + ", " + EVENT[:40], '{"traceEvents": [' + EVENT, '{"traceEvents": [' + EVENT + "]",
    '{"traceEvents": [1, 2]}', '{"traceEvents": {"a": 1}}', '{"traceEvents": "none"}', '{"traceEvents": [' + EVENT + "] [" + EVENT + "]}",
    "]" * 50, "{" * 50_000, "[" * 50_000,
    '{"traceEvents": [' + EVENT + "} " + EVENT + "]}", '{"traceEvents": [' + EVENT + "," + "]}", '{"traceEvents": [[' + EVENT + "]]}",
    '"traceEvents": [' + EVENT + "]", '{"traceEvents": [' + EVENT.replace("1.000", "9223372036854775808") + "]}",
    '{"traceEvents": [' + EVENT.replace('"ts": 1.000', '"ts": 9223372036854775.807') + "]}",
    '{"traceEvents": [' + EVENT.replace('"dur": 1.000', '"dur": -0.001') + "]}",
    '{"traceEvents": [' + EVENT.replace('"name": "a"', '"name": 7') + "]}",
    '{"traceEvents": [' + EVENT.replace('"name": "a"', '"name": "a') + "]}",
    '{"deviceProperties": 5, "traceEvents": [' + EVENT + "]}", '{"distributedInfo": [], "traceEvents": [' + EVENT + "]}",
])
def test_text_that_is_no_trace(tmp_path: Path, text: str) -> None:
    (tmp_path / "t.json").write_text(text)
    refused(tmp_path / "t.json")


def bomb(path: Path, line: str, count: int) -> Path:
    """A small gzip'd file of many equal lines among events."""
    with gzip.open(path, "wt", compresslevel=9) as file:
        file.write('{"traceEvents": [' + STEP + ",\n")
        for _ in range(count // 1000):
            file.write(line * 1000)
        file.write(EVENT + "]}")
    return path


def peak_of(read: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        read()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_zip_bomb_is_known_by_its_ratio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "RATIO_FROM_BYTES", 4 << 20)
    path = bomb(tmp_path / "t.json.gz", EVENT + "," + " " * 4000 + "\n", 4_000)
    assert path.stat().st_size < 100_000
    assert "times its size" in refused(path, "trace_too_large").message


def test_a_bomb_below_the_ratio_is_bounded_by_its_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kineto_collector, "MAX_EVENTS", 5_000)
    found = refused(bomb(tmp_path / "t.json.gz", EVENT + ",\n", 20_000), "trace_too_large")
    assert "5,000 events" in found.message


def test_names_and_shapes_are_bounded_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kineto_collector, "MAX_TEXT_BYTES", 1 << 20)
    names, shapes = TraceBuilder().step(0, 10), TraceBuilder().step(0, 10)
    for number in range(3_000):
        names.op(f"{number}" * 200, 1, 2)
        shapes.op("aten::a", 1, 2, Input_Dims=[[number] * 200])
    for builder in (names, shapes):
        assert "1 MiB" in refused(builder.write(tmp_path / "t.json"), "trace_too_large").message


def test_a_file_larger_than_allowed(tmp_path: Path) -> None:
    path = TraceBuilder().step(0, 10).op("aten::a" * 500, 1, 2).write(tmp_path / "t.json")
    with pytest.raises(BadInput) as caught:
        read_kineto(path, max_bytes=1000)
    assert caught.value.code == "trace_too_large" and packed.DEFAULT_MAX_BYTES >= 8 << 30


@pytest.mark.parametrize("text", [
    '{"traceEvents": [{"name": "' + "x" * (3 << 20) + '"}]}', '{"x": "' + "x" * (3 << 20) + '", "traceEvents": [' + EVENT + "]}",
    " " * (3 << 20), '{"traceEvents": [' + EVENT + "," * (3 << 20)], ids=["event", "around", "blank", "commas"])
def test_what_never_ends_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    for limit in ("kineto_split.MAX_PART_BYTES", "kineto_stream._MAX_PART_BYTES", "kineto_mend._MOST_CARRIED_BYTES"):
        monkeypatch.setattr(f"kernelwright.readers.{limit}", 1 << 20)
    (tmp_path / "t.json").write_text(text)
    read: list[int] = []
    monkeypatch.setattr(packed, "CHUNK_BYTES", 1 << 17)

    def counted(*args: Any) -> Iterator[bytes]:
        for chunk in packed.unpacked(*args):
            read.append(len(chunk))
            yield chunk

    monkeypatch.setattr("kernelwright.readers.kineto.unpacked", counted)
    refused(tmp_path / "t.json")
    assert len(read) < 40, "three ways, each given up after about 1 MiB"


def test_other_layouts_take_memory_by_events_not_by_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys in another order: the slow way."""
    monkeypatch.setattr(packed, "CHUNK_BYTES", 1 << 17)
    monkeypatch.setattr("kernelwright.readers.kineto_split._BATCH_BYTES", 1 << 17)
    monkeypatch.setattr("kernelwright.readers.kineto_stream._MAX_PART_BYTES", 1 << 18)
    builder = TraceBuilder().step(0, 10**6)
    for number in range(3_000):
        builder.op(f"aten::{number % 50}", 10 * number, 10 * number + 5, note="x" * 2000)
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"traceEvents": [{"zz": 1, **event} for event in json.loads(builder.text())["traceEvents"]]}))
    del builder
    read_kineto(path)
    assert peak_of(lambda: read_kineto(path)) < path.stat().st_size / 2


def test_mending_takes_time_by_the_length() -> None:
    """Quadratic ways through this MB would take an hour (the suite's limit is minutes)."""
    for text in (b'"name": "' * 120_000, b"\\" * 1_000_000, b'"name": "x",' * 80_000 + b"\n", b": nan" * 200_000):
        assert sum(len(piece) for piece in mended([text])) >= len(text) - 1


# -- the splitter -----------------------------------------------------------------------------------------------------------

TEXTS = st.recursive(st.none() | st.booleans() | st.integers(-9, 9) | st.text('{}[],:"\\ atré', max_size=5),
                     lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('{}[],:"\\ t', max_size=4), inner, max_size=3),
                     max_leaves=8)
Object = dict[str, object]
OBJECTS = st.dictionaries(st.text('{}[],:"\\ t', max_size=4), TEXTS, max_size=3)


def pieces(data: bytes, size: int) -> Iterator[bytes]:
    return (data[at:at + size] for at in range(0, len(data), size))


@given(before=OBJECTS, events=st.lists(OBJECTS, max_size=6), after=OBJECTS, size=st.integers(1, 60), indent=st.sampled_from([None, 1]),
       escaped=st.booleans())
@examples(80)
def test_any_document_is_split_into_its_events(before: Object, events: list[Object], after: Object, size: int, indent: int | None,
                                               escaped: bool) -> None:
    document = {**{f"b{key}": value for key, value in before.items()}, "traceEvents": events,
                **{f"a{key}": value for key, value in after.items()}}
    text = json.dumps(document, indent=indent, ensure_ascii=escaped).encode()
    splitter = Splitter()
    found = [json.loads(event) for batch in splitter.batches(pieces(text, size)) for event in batch]
    assert found == events and json.loads(splitter.around) == {**document, "traceEvents": []}


@given(events=st.lists(OBJECTS, max_size=4), size=st.integers(1, 30), data=st.data())
@examples(80)
def test_a_damaged_document_is_malformed_or_split_alike_in_any_pieces(events: list[Object], size: int, data: st.DataObject) -> None:
    text = bytearray(json.dumps({"a": 1, "traceEvents": events, "b": [2]}).encode())
    for _ in range(data.draw(st.integers(1, 3))):
        text[data.draw(st.integers(0, len(text) - 1))] = data.draw(st.sampled_from(list(b'"{}[],:\\ x')))

    def split(size: int) -> tuple[list[bytes], bytes] | None:
        splitter = Splitter()
        try:
            return [event for batch in splitter.batches(pieces(bytes(text), size)) for event in batch], splitter.around
        except Malformed:
            return None

    assert split(size) == split(1 << 20)

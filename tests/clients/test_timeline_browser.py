"""The timeline page in a real browser: opens, zooms, moves, filters, tells what is under the pointer, and lets no name do anything.

With UPDATE_PICTURES=1 the pictures in docs/pictures are made anew.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from browser import ROOT, Page, browser

from builders import HOSTILE
from kernelwright.attribute.attribute import attribute
from kernelwright.model.trace import Trace
from kernelwright.readers.kineto import read_kineto
from kernelwright.readers.nsys import read_nsys
from kernelwright.report.timeline_html import Recording, write_ranks_html, write_timeline_html
from kernelwright.timeline.flow import FlowOf
from nsys_recordings import recording
from synthetic_timeline import OPERATORS, timeline
from trace_builder import TraceBuilder

LAUNCHES = 50_000
SHIFT = 8
NAMES = 216
"""Width of the lanes' names, in pixels."""
IN_VIEW = "timeline.view()[1] - timeline.view()[0]"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser(tmp_path_factory.mktemp("browser")) as one:
        yield one


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> tuple[Trace, Path]:
    trace, file = timeline(LAUNCHES), tmp_path_factory.mktemp("large") / "timeline.html"
    write_timeline_html(file, trace, title="50,000 launches")
    return trace, file


@dataclass(frozen=True)
class Spot:
    """One event on the page."""

    x: float
    y: float
    start: int
    end: int


def spot(page: Page, name: str, kind: str = "device", skip: int = 0) -> Spot:
    found = page.js(f"timeline.where({name!r}, {kind!r}, {skip})")
    return Spot(found["x"], found["y"], found["start"], found["end"])


def settle(page: Page, act: Callable[[], None]) -> None:
    """Acts, and waits until the page was drawn anew."""
    before = page.js("document.documentElement.dataset.drawn")
    act()
    page.wait(f"document.documentElement.dataset.drawn > {before}")


def span(page: Page) -> tuple[float, float]:
    low, high = page.js("timeline.view()")
    return low, high


def tip(page: Page) -> str | None:
    """What the pointer is told, label by label; None when it is told nothing."""
    found = page.js("document.getElementById('tip').hidden ? null : document.getElementById('tip').innerText")
    return None if found is None else str(found)


def zoom_to(page: Page, name: str, kind: str = "device", skip: int = 0) -> Spot:
    """Zooms with the wheel until an event is wide enough to be pointed at."""
    for _ in range(60):
        at = spot(page, name, kind, skip)
        low, high = span(page)
        if (at.end - at.start) / (high - low) > 0.02:
            return at
        settle(page, lambda at=at: page.mouse("mouseWheel", at.x, at.y, deltaX=0, deltaY=-400))
    raise AssertionError("the wheel does not zoom in")


def choose(page: Page, text: str) -> str:
    """Types into the filter; the page's answer."""
    page.js("document.getElementById('filter').focus(); document.getElementById('filter').value = ''; "
            "document.getElementById('matches').textContent = ''")
    page.ask("Input.insertText", text=text)
    page.wait("document.getElementById('matches').textContent !== ''")
    return str(page.js("document.getElementById('matches').textContent"))


def complaints(page: Page) -> list[object]:
    return page.told("Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled")


def requests(page: Page) -> list[str]:
    return [event["params"]["request"]["url"] for event in page.told("Network.requestWillBeSent")]


def test_a_recording_opens_offline_and_tells_operator_and_launch(page: Page, tmp_path: Path) -> None:
    trace = read_kineto(ROOT / "tests" / "data" / "captures" / "h200" / "gpt2" / "trace.json.gz")
    file = tmp_path / "timeline.html"
    write_timeline_html(file, trace, operators=attribute(trace).operators, title="gpt2")
    page.open(file)
    assert complaints(page) == [] and requests(page) == [file.resolve().as_uri()]
    lanes = page.js("timeline.lanes")
    assert "GPU 0 stream 7" in lanes and "operators, main thread" in lanes

    row = next(row for row, start in enumerate(trace.device.start_ns) if "vectorized_layer_norm" in trace.device.name(row) and start > 0)
    name = trace.device.name(row)
    at = zoom_to(page, name)
    page.mouse("mouseMoved", at.x, at.y)
    told = tip(page)
    assert told is not None and name[:60] in told
    for label, words in (("operator", "aten::native_layer_norm"), ("category", "kernel"), ("grid", r"\d+ × \d+ × \d+"),
                         ("launched by", "cudaLaunchKernel"), ("duration", rf"{(at.end - at.start) / 1000:.3f} µs")):
        assert re.search(rf"^{label}\n{words}$", told, re.MULTILINE), (label, told)

    count = sum("layer_norm" in name for name in (trace.device.name(row) for row in range(len(trace.device))))
    assert choose(page, "native_layer_norm").startswith(f"{count} on the device, ")
    page.key("Escape")
    page.js("document.getElementById('steps').value = '1'")
    settle(page, lambda: page.js("document.getElementById('steps').dispatchEvent(new Event('change'))"))
    low, high = span(page)
    assert low < trace.steps.start_ns[1] and high > trace.steps.end_ns[1] and high - low < 1.1 * trace.steps.duration_ns[1]


def test_idle_time_is_coloured_by_cause_and_told(page: Page, tmp_path: Path) -> None:
    """A training step that waits for its data."""
    trace, _ = read_nsys(recording("slow_loader") / "report.sqlite")
    of = FlowOf(trace)
    write_timeline_html(tmp_path / "t.html", trace, flow=of.flow(), gaps=of.device_gaps, title="slow_loader")
    page.open(tmp_path / "t.html")
    assert "GPU 0 idle, by cause" in page.js("timeline.lanes")
    legend = page.js("document.getElementById('legend').innerText")
    assert "idle: data loader" in legend and "idle: host bound" in legend
    at = zoom_to(page, "data loader", "gaps")
    page.mouse("mouseMoved", at.x, at.y)
    told = tip(page)
    assert told is not None and told.startswith("data loader") and "in\nenumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__" in told


def test_fifty_thousand_launches_open_zoom_and_move(
        page: Page, large: tuple[Trace, Path], record_property: Callable[[str, object], None]) -> None:
    file = large[1]
    page.open(file)
    ready = int(page.js("document.documentElement.dataset.ready"))
    record_property("first_picture_ms", ready)
    record_property("page_bytes", file.stat().st_size)
    print(f"\n{LAUNCHES} launches: {file.stat().st_size} bytes, first picture after {ready} ms")
    assert page.js("timeline.entries") == 4 * LAUNCHES + 4 and complaints(page) == []

    before = span(page)
    x, y = 800, spot(page, "sum_kernel").y
    box = "document.getElementById('lanes').getBoundingClientRect()"
    left, width = page.js(f"[{box}.x + {NAMES}, {box}.width - {NAMES}]")
    under = before[0] + (x - left) / width * (before[1] - before[0])
    settle(page, lambda: page.mouse("mouseWheel", x, y, deltaX=0, deltaY=-400))
    after = span(page)
    assert after[1] - after[0] < 0.6 * (before[1] - before[0])
    now_under = after[0] + (x - left) / width * (after[1] - after[0])
    assert now_under == pytest.approx(under, abs=2e-3 * (after[1] - after[0])), "what is under the pointer stays"

    settle(page, lambda: page.drag(x, y, x - 100))
    moved = span(page)
    assert moved[0] == pytest.approx(after[0] + 100 / width * (after[1] - after[0]), rel=1e-3)
    assert moved[1] - moved[0] == pytest.approx(after[1] - after[0])
    settle(page, lambda: page.drag(x, y, x + 200, modifiers=SHIFT))
    stretch = span(page)
    assert stretch[1] - stretch[0] == pytest.approx(200 / width * (moved[1] - moved[0]), rel=0.02), "shift and drag zooms to a stretch"

    for key, changes in (("w", lambda was, now: now < was), ("s", lambda was, now: now > was), ("0", lambda was, now: now > was)):
        was = page.js(IN_VIEW)
        settle(page, lambda key=key: page.key(key))
        assert changes(was, page.js(IN_VIEW)), key
    assert span(page) == before
    settle(page, lambda: page.key("w"))
    was = span(page)
    settle(page, lambda: page.key("d"))
    assert span(page)[0] > was[0]


def test_fifty_thousand_launches_hover_tells_the_right_operator(page: Page, large: tuple[Trace, Path]) -> None:
    trace, file = large
    page.open(file)
    rows = {int(start): row for row, start in enumerate(trace.device.start_ns) if trace.device.stream[row] == 7}
    for skip in (10, 3_000):
        page.key("0")
        name = "triton_poi_fused_add_0"
        at = zoom_to(page, name, skip=skip)
        launch = int(trace.device.correlation[rows[at.start]]) - 1
        page.mouse("mouseMoved", at.x, at.y)
        told = tip(page)
        assert told is not None and told.startswith(name)
        assert f"operator\n{OPERATORS[1 + launch % (len(OPERATORS) - 1)]}\n" in told
        assert "block\n128 × 1 × 1\nregisters per thread\n40\nshared memory per block\n2,048 B" in told
        waits = (at.start - int(trace.runtime.start_ns[launch])) / 1000
        assert f"call to start\n{waits:.3f} µs" in told if waits < 10_000 else "call to start\n" in told
    page.click(at.x, at.y)
    assert name in page.js("document.getElementById('selected').innerText")
    page.key("Escape")
    assert page.js("document.getElementById('selected').hidden")
    page.mouse("mouseMoved", at.x, 5)
    page.wait("document.getElementById('tip').hidden")


def test_fifty_thousand_launches_filter(page: Page, large: tuple[Trace, Path]) -> None:
    trace, file = large
    page.open(file)
    gemms = sum(int(trace.device.duration_ns[row]) for row in range(len(trace.device)) if trace.device.name(row).startswith("void gemm"))
    share = 100 * gemms / int(trace.device.duration_ns.sum())
    assert choose(page, "^void gemm_tn") == f"10,000 on the device, {gemms / 1e6:.3f} ms ({share:.1f}% of device time); 0 on the host"
    assert page.js("timeline.matches()") == 10_000
    page.key("Enter")
    first = min(int(start) for row, start in enumerate(trace.device.start_ns) if trace.device.name(row).startswith("void gemm"))
    page.wait("!document.getElementById('selected').hidden")
    chosen = page.js("document.getElementById('selected').innerText")
    assert chosen.startswith("void gemm_tn<float, 4>(float*)") and f"start\n{first / 1000:.3f} µs" in chosen
    assert choose(page, "aten::(relu|mul)$").startswith("20,000 on the device"), "kernels are found by their operator too"
    assert choose(page, "relu_kernel<float>(").startswith("10,000 on the device"), "what is no regular expression is looked for as it is"
    assert choose(page, "no such thing") == "0 on the device, 0 ns (0.0% of device time); 0 on the host"
    page.key("Escape")
    assert page.js("timeline.matches()") is None


def test_merged_events_are_told_as_such(page: Page, large: tuple[Trace, Path], tmp_path: Path) -> None:
    write_ranks_html(tmp_path / "coarse.html", [Recording(large[0])], title="coarse", most=5_000)
    page.open(tmp_path / "coarse.html")
    assert page.js("timeline.entries") <= 5_000
    assert "short events" in page.js("document.getElementById('notes').innerText")
    assert choose(page, "^void gemm_tn").startswith("10,000 on the device"), "totals count what is merged"
    page.key("Escape")
    lane = spot(page, "sum_kernel")
    found = set()
    for x in range(240, 1380, 12):
        page.mouse("mouseMoved", x, lane.y)
        told = tip(page) or ""
        found.update(word for word in ("merged\n", "operator\n") if word in told)
    assert "merged\n" in found


def test_many_ranks_scroll_and_fold(page: Page, tmp_path: Path) -> None:
    names = [(f"kernel_of_rank_{rank}",) for rank in range(8)]
    write_ranks_html(tmp_path / "t.html", [Recording(timeline(200, rank=rank, names=names[rank])) for rank in range(8)], title="8 ranks")
    page.open(tmp_path / "t.html", height=500)
    below = spot(page, "kernel_of_rank_7")
    assert below.y > 500, "more lanes than the window holds"
    before = span(page)
    settle(page, lambda: page.mouse("mouseWheel", 60, 300, deltaX=0, deltaY=5_000))
    page.wait("document.getElementById('scroll').scrollTop > 0")  # what was drawn first may be the pointer's place
    assert spot(page, "kernel_of_rank_7").y < below.y and span(page) == before, "over the names the wheel scrolls"
    at = zoom_to(page, "kernel_of_rank_7")
    page.mouse("mouseMoved", at.x, at.y)
    assert (tip(page) or "").startswith("kernel_of_rank_7")
    settle(page, lambda: page.js("document.getElementById('scroll').scrollTop = 0"))
    box = page.js("(() => { const box = document.getElementById('lanes').getBoundingClientRect(); return [box.x, box.y]; })()")
    operators = page.js("timeline.lanes").index("operators, main thread")
    assert page.js("timeline.where('aten::addmm', 'operators')") is not None
    settle(page, lambda: page.click(box[0] + 60, box[1] + 22 + 20 + 21 * operators + 8))
    assert page.js("timeline.where('aten::addmm', 'operators')") is None, "a folded lane shows its first row only"


def test_hostile_names_do_nothing(page: Page, tmp_path: Path) -> None:
    evil = "</script><img src=x onerror=\"window.hacked = 1\"><script>window.hacked = 2</script><b onclick=alert(1)>" + HOSTILE
    builder = TraceBuilder(device=evil).step(0, 1000).range(evil, 1, 999).op(evil, 5, 900).launch(1, 10, 20, name=evil)
    trace = read_kineto(builder.kernel(evil, 30, 800, 1).write(tmp_path / "t.json"))
    file = tmp_path / "timeline.html"
    write_timeline_html(file, trace, operators=attribute(trace).operators, title=evil)
    page.open(file)
    assert complaints(page) == [] and requests(page) == [file.resolve().as_uri()]
    at = page.js("(() => { const box = document.getElementById('lanes').getBoundingClientRect(); return [box.x + 800, box.y]; })()")
    lanes = page.js("timeline.lanes").index("GPU 0 stream 7")
    page.mouse("mouseMoved", at[0], at[1] + 22 + 20 + 21 * lanes + 8)
    assert "<img src=x onerror=" in (tip(page) or ""), "shown as text"
    page.click(at[0], at[1] + 22 + 20 + 21 * lanes + 8)
    choose(page, "<img src=x")
    assert page.js("window.hacked") is None and page.js("document.images.length") == 0 and page.js("document.scripts.length") == 2
    assert page.told("Page.javascriptDialogOpening") == []
    # Were there a hole, the page's policy would still let nothing run.
    hole = "<img src=x onerror=\\'window.hacked = 3\\'><a href=\\'javascript:1\\' onclick=\\'window.hacked = 4\\'>"
    page.js(f"document.body.insertAdjacentHTML('beforeend', '{hole}')")
    page.js("document.querySelector('a').click(); new Promise((done) => setTimeout(done, 100))")
    assert page.js("window.hacked") is None


def test_pictures_of_the_documentation(page: Page, large: tuple[Trace, Path], tmp_path: Path) -> None:
    """Light and dark, both drawn; kept in docs/pictures when asked for."""
    trace, _ = read_nsys(recording("gpt2") / "report.sqlite")
    of = FlowOf(trace)
    write_timeline_html(tmp_path / "t.html", trace, operators=attribute(trace).operators, flow=of.flow(), gaps=of.device_gaps, title="gpt2")
    pictures = {}
    for dark in (False, True):
        page.open(tmp_path / "t.html", width=1200, height=560, dark=dark)
        middle = spot(page, "aten::addmm", "operators", 70)
        for _ in range(5):
            settle(page, lambda at=middle: page.mouse("mouseWheel", at.x, at.y, deltaX=0, deltaY=-400))
        kernel = spot(page, next(name for name in trace.device.names if "fmha" in name), "device", 18)
        page.mouse("mouseMoved", kernel.x, kernel.y)
        page.js("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        pictures[dark] = page.picture()
    page.open(large[1], width=1200, height=420)
    zoom_to(page, "sum_kernel", skip=100)
    choose(page, "gemm|aten::mul")
    page.js("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    many = page.picture()
    assert pictures[False] != pictures[True] and all(len(one) < 200_000 for one in (*pictures.values(), many))
    if os.environ.get("UPDATE_PICTURES"):
        (ROOT / "docs" / "pictures" / "timeline.png").write_bytes(pictures[False])
        (ROOT / "docs" / "pictures" / "timeline_50000.png").write_bytes(many)

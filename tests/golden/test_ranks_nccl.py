"""Two ranks over NCCL on two H200s of one host (examples/train_ddp.py --late-work 20), recorded by --ranks 2: rank 1 comes late."""

from __future__ import annotations

import gzip
import json
import statistics
from pathlib import Path

import pytest

from archives import unpack
from kernelwright.cli import main
from kernelwright.model.ranks import Ranks
from kernelwright.pipeline.ranks import SKEWED_STEPS, rank_files, read_ranks
from kernelwright.timeline.ranks import compare_ranks

DATA = Path(__file__).resolve().parents[1] / "data" / "ranks" / "nccl_late.tar.xz"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("nccl")
    unpack(DATA, place)
    return place / "raw"


@pytest.fixture(scope="module")
def ranks(folder: Path) -> Ranks:
    return compare_ranks([(rank, trace) for rank, trace, _ in read_ranks(rank_files(folder), None)], leave_out=SKEWED_STEPS)


def test_the_late_rank_is_named(ranks: Ranks) -> None:
    assert (ranks.world_size, ranks.backend, ranks.collectives, ranks.unmatched) == (2, "device", 10, 0)
    first, second = ranks.ranks
    assert (first.last, second.last, ranks.waited) == (0, 5, 5)
    assert second.caused_ns == ranks.waits_for[0][1] == 25_683_940 and ranks.waits_for[1] == (0, 0)
    assert first.exposure.exposed_waiting_ns > 0.95 * second.caused_ns, "nothing runs on rank 0 while it waits"
    assert ranks.kinds[0].kind == "all_reduce"


def test_waits_agree_with_the_hosts_one_clock(folder: Path, ranks: Ranks) -> None:
    """Both ranks ran on one host, so here their clocks can be compared, which the product never does."""
    starts = [_all_reduces(folder / f"rank{rank}" / "trace.json.gz") for rank in (0, 1)]
    late_us = [max(0.0, second - first) for first, second in zip(*starts, strict=True)]
    compared = sum(late_us[len(late_us) - ranks.collectives:])
    assert compared == pytest.approx(ranks.waits_for[0][1] / 1e3, rel=0.01)
    assert statistics.median(late_us) > 0


def test_the_page_has_a_group_of_lanes_a_rank(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile_kernel", str(folder), "--mode", "nsys", "--out", str(tmp_path / "out"), "--json"]) == 0
    page = Path(json.loads(capsys.readouterr().out)["timeline"])
    data = json.loads(page.read_text().partition('id="data">')[2].partition("</script>")[0])
    streams = {lane["group"].partition(" · ")[0]: sum(lane["rows"]) for lane in data["lanes"] if lane["kind"] == "device"}
    assert page == tmp_path / "out" / "timeline.html" and set(streams) == {"rank 0", "rank 1"} and min(streams.values()) > 0
    assert data["title"] == "raw: 2 ranks" and "0 is the start of each rank's own first step." in data["notes"]
    assert any(category == "communication" for category, *_ in data["kinds"])
    assert "Timeline: timeline.html." in (tmp_path / "out" / "report.md").read_text()


def _all_reduces(file: Path) -> list[float]:
    with gzip.open(file) as opened:
        trace = json.load(opened)
    return sorted(event["ts"] + trace["baseTimeNanoseconds"] / 1e3 for event in trace["traceEvents"]
                  if event.get("cat") == "kernel" and "AllReduce" in event["name"])

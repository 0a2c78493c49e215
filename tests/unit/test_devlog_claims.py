"""What a note claims against what its entry measured."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

import builders
from kernelwright.devlog import add_entry, read_log
from kernelwright.devlog.claims import refuse_contradictions
from kernelwright.devlog.entry import make_entry
from kernelwright.model.errors import BadInput
from kernelwright.model.profile import Profile

LATER = {"version": "v5", "capture_timestamp_utc": "2026-01-03T00:00:00+00:00"}


def at(median_us: float, **meta: object) -> Profile:
    return builders.with_counters(capture_metadata=builders.metadata(**meta), timing=builders.timing(median_us),
                                  work=builders.work(median_us))


def exactly(median_us: float, **meta: object) -> Profile:
    return at(median_us, **meta).model_copy(update={"timing": builders.timing(median_us, spread=0.0005)})


def hold(note: str, now: Profile, *before: Profile) -> None:
    """Hold a note of `now` against the log of `before`."""
    earlier = [make_entry(profile, []) for profile in before]
    refuse_contradictions(make_entry(now, earlier), earlier, {"--insight": (note,)})


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log whose last entry took 1000 us."""
    add_entry(at(1000.0), tmp_path / "mla.devlog.md")
    return tmp_path / "mla.devlog.md"


@pytest.mark.parametrize("note", [
    "30% faster: tiles of 64", "It is 1.43x faster than v4.", "faster by 31%", "could be 90% faster with TMA", "expected 2x faster",
    "5x faster than torch",
    "no claim at all", "the qk stage is compute-bound", "was 10% slower than v2 before", "the qk stage is 50% faster",
    "50% faster in the softmax stage", "50% faster at small sizes", "v3 is 50% faster than v2",
    "30% faster when the row stays in registers",
    "1.43x speed-up", "Faster than v4: tiles of 64", "It takes 700 us now.", "takes 0.7 ms", "the qk loop takes 12 us", "occupancy 40%",
    "the kernel takes 300 us of the call", "reaches 1714 GB/s", "reaches 3000 GB/s of DRAM reads", "now at 157 TFLOP/s",
    "theoretical occupancy 90%",
    "takes 12 us in the softmax stage", "50% slower for b=1", "It was 50% slower before.", "4100 GB/s is the roof",
    "Tried BLOCK=256: 12% slower, dropped", "not slower than v4", "It is not 50% faster",
    "b=1: 50% slower", "30% faster at b=32", "takes 30% less time", "Duration: 700 us", "700 us per call", "It is faster",
    "1.4x the throughput of v4",
    "Latency dropped 30% against v4", "speedup: 1.43x", "The compile is slower", "The softmax stage is slower", "regressed versus torch",
    "3 us per call of the helper", "Memory-bound stages come first", "doubled the tile size",
    "Latency of 400 ns per DRAM read", "Time 12 us goes to the prologue",
    "Accuracy regressed", "takes 50% less time to compile", "Launch latency dropped 50%", "It is slower to compile",
    "Bottleneck is memory latency", "the prologue regressed",
    "3x as fast as cuBLAS", "1.43x as fast as v4", "30% faster vs. v4", "5x faster vs. torch", "time dropped 30% since v4",
    "time dropped 60% from 1750 us to 700 us", "slower than last week", "50% faster than last year's version",
    "occupancy: 25% -> 40%", "duration: 1000 us -> 700 us", "occupancy 25% before, 40% now", "bandwidth of 4800 GB/s on this device",
    "tensor cores at 60% in the GEMM", "3 us per call overhead", "it takes 12 us for compilation", "latency is 3 us for a DRAM read",
    "50% less time on the CPU", "50% more time waiting for memory", "doubled the time between two launches", "It is slower under load",
    "It is slower when the cache is cold", "The kernel is slower with a cold cache", "time up 20% on the CPU", "num_warps=8 is 10% slower",
    "the reduction is 50% faster", "tiles of 64 made the reduction 50% faster", "loads are wide, the epilogue is 3x faster",
    "50% faster on long rows", "2x faster for larger inputs", "It's faster", "mla v5 is faster", "30% faster than mla v4",
    "cut the time by about 30%", "latency has been cut by 30%", "Median: 700 us", "Now 700 us", "three times faster than cuBLAS",
    "the first of three faster ways", "now 12 us less", "the bottleneck is launch latency of the host",
])
def test_what_the_entry_bears_is_taken(note: str) -> None:
    hold(note, at(700.0, **LATER), at(1000.0))


@pytest.mark.parametrize(("note", "says"), [
    ("50% faster: tiles of 64", "30.0% faster than the entry before"), ("10% slower", "30.0% faster"), ("now 2x faster", "30.0% faster"),
    ("slower by 30%", "30.0% faster"), ("Good. The kernel is compute-bound now", "-bound"), ("v5 is latency-bound", "-bound"),
    ("50% faster when the row stays in registers", "30.0% faster"), ("50% faster, which is a step forward", "30.0% faster"),
    ("If tiles are of 64 it is 50% faster", "30.0% faster"), ("2x speed-up", "30.0% faster"), ("a speed-up of 3x", "30.0% faster"),
    ("slower than v4", "30.0% faster than the entry before"), ("It takes 12 us now", "700.00 us a call"), ("takes 1.2 ms", "700.00 us"),
    ("Reaches 3000 GB/s", "1714.29 GB/s"), ("now at 3 TB/s", "1714.29 GB/s"), ("runs at 300 TFLOP/s", "157.14 TFLOP/s"),
    ("Occupancy is 90%", "occupancy "), ("90% occupancy now", "occupancy "),
    ("92% slower at b=32", "30.0% faster"), ("Duration: 9 us", "700.00 us"), ("Latency 0.9 ms", "700.00 us"), ("3 us per call",
    "700.00 us"),
    ("GB/s: 9000", "1714.29 GB/s"), ("Achieved bandwidth: 9 TB/s", "1714.29 GB/s"), ("TFLOP/s = 900", "157.14 TFLOP/s"),
    ("Compute-bound", "-bound"), ("Bottleneck: compute-bound", "-bound"), ("bottleneck is latency", "-bound"), ("speedup: 40x",
    "30.0% faster"),
    ("twice as slow", "30.0% faster"), ("2x as fast", "30.0% faster"), ("halved the time", "30.0% faster"), ("takes 50% less time",
    "30.0% faster"),
    ("3x the throughput of v4", "30.0% faster"), ("Latency dropped 95% against v4", "30.0% faster"), ("Duration rose by 5%",
    "30.0% faster"),
    ("Regressed versus v4", "30.0% faster"), ("It is slower", "30.0% faster"), ("v5 got slower", "30.0% faster"), ("TC util 99%",
    "TC util "),
    *[(note, "30.0% faster") for note in (
        "2.5x as fast as v4", "time dropped 60% since v4", "60% faster vs. v4", "it's slower", "the new version is slower",
        "mla v5 is slower", "three times faster", "faster by 3x", "time doubled", "latency has been cut by 80%",
        "time dropped by about 80%", "reduced latency by 80%", "slower than mla v4", "slower than mla:v4", "slower than version v4",
        "80% faster with larger tiles", "80% faster since the loads are wide", "so it is now about 80% faster", "this made it 80% faster",
        "80% faster than the last one", "increased the time by 5%", "halved the time, tiles of 64")],
    ("now 12 us", "700.00 us"), ("median: 12 us", "700.00 us"), ("takes 1,200 us", "700.00 us"), ("it's compute-bound", "-bound"),
    ("the bottleneck is compute", "-bound"), ("its bottleneck is now latency", "-bound"),
])
def test_what_it_does_not_bear_is_refused(note: str, says: str) -> None:
    with pytest.raises(BadInput) as caught:
        hold(note, at(700.0, **LATER), at(1000.0))
    assert caught.value.code == "contradicts_profile" and says in caught.value.message


def test_of_what_is_refused_nothing_is_written(log: Path) -> None:
    note, says = "50% faster: tiles of 64", "30.0% faster than the entry before"
    with pytest.raises(BadInput) as caught:
        add_entry(at(700.0, **LATER), log, issues=["x"], insights=["fine", note], check_notes=True)
    assert caught.value.code == "contradicts_profile" and caught.value.where == "--insight" and says in caught.value.message
    assert len(read_log(log.with_suffix(".jsonl"))[0]) == 1
    assert add_entry(at(700.0, **LATER), log, insights=[note]).insights == (note,)  # what kernelwright writes itself is not asked


@pytest.mark.parametrize(("measured_us", "note"), [(1009.0, "1% faster"), (991.0, "1% slower"), (1009.0, "1.01x faster than v4")])
def test_a_small_change_in_the_other_direction_is_refused(measured_us: float, note: str) -> None:
    with pytest.raises(BadInput, match=r"the profile says: 0\.9%"):
        hold(note, exactly(measured_us, **LATER), exactly(1000.0))


@pytest.mark.parametrize(("note", "says"), [
    ("30% faster than v3", "65.0% faster than v3"), ("slower than v3", "65.0% faster than v3"),
    ("2x speed-up over v3", "65.0% faster than v3"),
    ("65% faster than v3", None), ("faster than v3", None), ("30% faster than v4", None), ("30% faster than v9", None),
    ("5x speed-up over torch", None),
])
def test_a_version_of_the_log_is_what_a_claim_stands_against(note: str, says: str | None) -> None:
    before = (at(2000.0, version="v3", capture_timestamp_utc="2026-01-01T00:00:00+00:00"), at(1000.0))
    with pytest.raises(BadInput, match=says) if says else contextlib.nullcontext():
        hold(note, at(700.0, **LATER), *before)


def test_noise_and_a_first_entry_bear_no_claim(log: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="within noise"):
        add_entry(at(1001.0, **LATER), log, insights=["0.1% faster"], check_notes=True)
    with pytest.raises(BadInput, match="no earlier entry"):
        add_entry(at(700.0), tmp_path / "other.devlog.md", issues=["3% slower"], check_notes=True)


@pytest.mark.parametrize(("meta", "timer"), [({"compile_mode": "inductor"}, "cuda_events"), ({}, "cuda_events, L2 flushed")])
def test_an_entry_made_with_other_settings_is_nothing_to_compare_with(meta: dict[str, str], timer: str) -> None:
    now = at(700.0, **LATER, **meta)
    now = now.model_copy(update={"timing": builders.timing(700.0).model_copy(update={"timer": timer})})
    assert make_entry(now, [make_entry(at(1000.0), [])]).change is None
    assert make_entry(at(700.0, **LATER), [make_entry(at(1000.0), [])]).change is not None


@pytest.mark.parametrize(("note", "says"), [("TC util 80%", "TC util was not measured"), ("occupancy 95%", "occupancy was not measured"),
                                            ("GB/s: 9000", "GB/s was not measured")])
def test_a_figure_that_was_not_measured_is_nobodys_to_type(note: str, says: str) -> None:
    with pytest.raises(BadInput, match=f"{says} in this mode") as caught:
        hold(note, builders.no_peaks())
    assert caught.value.fix == "leave it out, or add the entry of a profile that measures it"


def test_the_commit_is_named(log: Path) -> None:
    add_entry(at(700.0, **LATER), log, extra={"commit": "0123456789ab+changes"})
    assert ", commit 0123456789ab+changes\n" in log.read_text()

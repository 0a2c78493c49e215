"""What a note claims against what its entry measured."""

from __future__ import annotations

import contextlib
import time
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
])
def test_what_it_does_not_bear_is_refused(note: str, says: str) -> None:
    with pytest.raises(BadInput) as caught:
        hold(note, at(700.0, **LATER), at(1000.0))
    assert caught.value.code == "contradicts_profile" and says in caught.value.message


@pytest.mark.parametrize("note", [
    # Compared with something that is not in the log, or truly so.
    "3x as fast as cuBLAS", "1.43x as fast as v4", "time dropped 65% since v3", "Latency dropped 60% from torch eager",
    "time dropped 60% since Monday", "slower than last week", "faster than mla v4", "slower than softmax v4", "65% faster vs. v3",
    "est. 50% faster", "three times faster than torch",
    # Old figures, and those of something else.
    "occupancy: 25% -> 41%", "occupancy: 25% → 41%", "duration: 80 us -> 700 us", "duration: 1000 us to 700 us", "occupancy 25% before",
    "occupancy 25% before, 41% now", "bandwidth of 4800 GB/s on this device", "tensor cores at 20% in the GEMM",
    "12 us per call of the allocator", "it takes 12 us for compilation", "latency is 12 us for the copy",
    "Latency of 12 us in the prologue", "now 12 us in the prologue", "12 us per launch", "now 700 us", "median: 700 us",
    "the kernel takes 12 us",
    "the copy takes 12 us", "the softmax stage reaches 3000 GB/s", "cuBLAS reaches 3000 GB/s",
    # Something else's time, or the call's somewhere else.
    "30% more time waiting", "50% less time on the CPU", "50% more time in the barrier", "30% less time stalled", "50% more time for loads",
    "50% more time at the barrier", "50% less time spent in the epilogue", "doubled the time between launches",
    "latency of the copy doubled", "It is slower under load", "It is slower on the CPU", "It is slower when the cache is cold",
    "It is slower in the profiler",
    "It is slower with num_warps=8", "It is slower for b=1", "time up 20% on the CPU", "50% faster in the GEMM", "2x slower on the A100",
    "a 50% faster reduction", "reduced launch latency by 80%", "reduced latency by 80% for loads", "Compile time up 20%",
    # Another subject.
    "50% faster on long rows", "time dropped 60% from 1750 us to 700 us", "num_warps=8 is 10% slower", "num_warps=8: 10% slower",
    "the reduction is 50% faster", "The reduction is shorter and 50% faster",
    "The tile fits but is 10% slower", "GEMM speed-up: 3x", "The unfused version is 2x slower", "mla v3 is slower", "one call is slower",
    "the softmax's slower", "10% slower without TMA", "Unrolling makes it 10% slower", "it's faster", "latency has been cut by 30%",
    "reduced latency by 30%", "it's memory-bound", "the bottleneck is memory", "the bottleneck is compute in the epilogue",
    "It is compute-bound in the qk stage", "the loop is now compute-bound", "10–20% faster",
    # Other sizes and settings.
    "50% faster at t=1", "50% faster for larger batches", "For larger batches it is 50% slower", "50% faster, but only at t=1",
    "50% slower, mostly for larger batches", "At t=1 it is compute-bound", "At b=1 it is 50% slower, at b=32 30% faster",
])
def test_what_is_of_something_else_accuses_nobody(note: str) -> None:
    hold(note, at(700.0, **LATER), at(2000.0, version="v3", capture_timestamp_utc="2026-01-01T00:00:00+00:00"), at(1000.0))


@pytest.mark.parametrize(("note", "says"), [
    ("2.5x as fast as v4", "30.0% faster"), ("time dropped 80% since v4", "30.0% faster"), ("Latency fell 80% from v4", "30.0% faster"),
    ("30% faster vs. v3", "65.0% faster than v3"), ("It is 50% faster vs. v4, and uses TMA", "30.0% faster"),
    ("Compared with v3 it is 30% faster", "65.0% faster than v3"), ("slower than mla v4", "30.0% faster"),
    ("30% faster than mla:v3", "65.0% faster than v3"),
    ("occupancy: 25% -> 50%", "occupancy 41%"), ("occupancy: 25% → 50%", "occupancy 41%"), ("duration: 80 us -> 40 us", "700.00 us"),
    ("occupancy 25% before, 50% now", "occupancy 41%"), ("occupancy went from 41% to 50%", "occupancy 41%"), ("now 12 us", "700.00 us"),
    ("median: 12 us", "700.00 us"), ("duration: 1,200 us", "700.00 us"), ("It takes 1,200 us", "700.00 us"),
    ("takes 12 us per call", "700.00 us"), ("80 us -> 40 us per call", "700.00 us"),
    ("it's slower", "30.0% faster"), ("It’s slower", "30.0% faster"), ("the new version is slower", "30.0% faster"),
    ("mla v5 is slower", "30.0% faster"), ("three times faster", "30.0% faster"), ("faster by 3x", "30.0% faster"),
    ("50 percent faster", "30.0% faster"), ("time doubled", "30.0% faster"), ("The latency has halved", "30.0% faster"),
    ("latency has been cut by 80%", "30.0% faster"), ("Latency dropped by about 80%", "30.0% faster"),
    ("reduced latency by 80%", "30.0% faster"), ("50% faster on an H200", "30.0% faster"),
    ("it's compute-bound", "Memory-bound"), ("the bottleneck is compute", "Memory-bound"), ("mla v5 is compute-bound", "Memory-bound"),
    ("50% faster with larger tiles", "30.0% faster"),
    ("50% faster, and for larger batches nothing changed", "30.0% faster"), ("50% faster, but at t=1 it is slower", "30.0% faster"),
    ("50% slower for larger batches, 50% faster in total", "30.0% faster"), ("Fused the loads, and it is slower", "30.0% faster"),
    ("Fused the loads: 50% faster", "30.0% faster"), ("It uses TMA and is 3x faster", "30.0% faster"),
    ("Using TMA gave a 3x speed-up", "30.0% faster"),
])
def test_more_ways_to_say_what_is_not_so(note: str, says: str) -> None:
    with pytest.raises(BadInput) as caught:
        hold(note, at(700.0, **LATER), at(2000.0, version="v3", capture_timestamp_utc="2026-01-01T00:00:00+00:00"), at(1000.0))
    assert caught.value.code == "contradicts_profile" and says in caught.value.message


def test_many_words_take_no_time() -> None:
    for unit in ("1", "25% -> ", "at b=1 ", "when small ", "2x faster and ", "from 1 us to ", "it is "):
        started = time.monotonic()
        with contextlib.suppress(BadInput):
            hold(unit * 4000, at(700.0, **LATER), at(1000.0))
        assert time.monotonic() - started < 5


def test_of_what_was_not_measured_nobody_says_that_the_entry_has_it() -> None:
    for note, fix in (("occupancy: 50%", "leave it out, or add the entry of an ncu profile"), ("GB/s: 9000", "leave it out")):
        with pytest.raises(BadInput, match=r"was not measured in this profile \(mode event\)") as caught:
            hold(note, builders.no_peaks())
        assert caught.value.fix == fix
    with pytest.raises(BadInput) as caught:
        hold("3% slower", at(700.0))
    assert caught.value.fix == "leave it out"


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
    with pytest.raises(BadInput, match=says):
        hold(note, builders.no_peaks())


def test_the_commit_is_named(log: Path) -> None:
    add_entry(at(700.0, **LATER), log, extra={"commit": "0123456789ab+changes"})
    assert ", commit 0123456789ab+changes\n" in log.read_text()

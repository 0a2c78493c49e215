"""Gaps made on purpose on a real GPU, recorded by torch.profiler: each has the cause that it was made with."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from kernelwright.model.flow import Flow, Gap  # noqa: E402
from kernelwright.readers.kineto import read_kineto  # noqa: E402
from kernelwright.timeline.flow import flow  # noqa: E402

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]
MS = 1_000_000
LONG = 4_000_000
"""Cycles of a kernel that only waits: about 2 ms."""


def recorded(step: Callable[[], object], tmp_path: Path, *, steps: int = 2) -> Flow:
    """Flow of some calls, after two that warm up."""
    for _ in range(2):
        step()
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]) as profiler:
        for _ in range(steps):
            with torch.profiler.record_function("kernelwright.step"):
                step()
        torch.cuda.synchronize()
    profiler.export_chrome_trace(str(tmp_path / "trace.json"))
    return flow(read_kineto(tmp_path / "trace.json"))


def longest(gaps: tuple[Gap, ...]) -> Gap:
    """With what was found, when an assertion fails."""
    print(*[(gap.cause, gap.duration_ns, gap.call, gap.parts) for gap in gaps[:5]], sep="\n")
    return next(gap for gap in gaps if gap.cause != "profiler")  # the recording's own buffers, in its first step


def test_a_stream_that_waits_for_an_event(tmp_path: Path) -> None:
    side, x = torch.cuda.Stream(), torch.ones(1024, device="cuda")

    def step() -> None:
        x.add_(1)
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            torch.cuda._sleep(LONG)
        torch.cuda.current_stream().wait_stream(side)
        x.add_(1)

    found = recorded(step, tmp_path)
    waiting = [gap for gap in found.stream_gaps if gap.cause == "dependency" and gap.duration_ns > MS]
    assert len(waiting) >= 2, found.stream_gaps[:4]
    assert all(gap.event_wait and gap.after_stream not in (None, gap.stream) for gap in waiting)


def test_two_streams_at_once(tmp_path: Path) -> None:
    one, two = torch.cuda.Stream(), torch.cuda.Stream()

    def step() -> None:
        for stream in (one, two):
            with torch.cuda.stream(stream):
                torch.cuda._sleep(LONG)

    (device,) = recorded(step, tmp_path).devices
    assert len(device.concurrency_ns) == 3 and device.concurrency_ns[2] > MS
    assert device.overlaps.compute_compute_ns == device.concurrency_ns[2]


def test_waiting_for_a_number(tmp_path: Path) -> None:
    x = torch.ones(1024, device="cuda")

    def step() -> None:
        for _ in range(5):
            torch.cuda._sleep(LONG // 10)
            x.sum().item()
            # Host work that would have passed beside the kernel.
            ends = time.perf_counter() + 100e-6
            while time.perf_counter() < ends:
                pass

    gap = longest(recorded(step, tmp_path).gaps)
    assert gap.cause == "synchronization" and gap.operator == "aten::_local_scalar_dense"


def test_slow_python(tmp_path: Path) -> None:
    x = torch.ones(1024, device="cuda")

    def step() -> None:
        x.add_(1)
        time.sleep(5e-3)
        x.add_(1)

    gap = longest(recorded(step, tmp_path).gaps)
    assert gap.cause == "host_bound" and gap.duration_ns > 4 * MS and gap.next_operator == "aten::add_"


def test_memory_from_the_driver(tmp_path: Path) -> None:
    x = torch.ones(1024, device="cuda")

    def step() -> None:
        x.add_(1)
        torch.cuda.empty_cache()
        big = torch.empty(8 << 30, dtype=torch.uint8, device="cuda")
        x.add_(1)
        del big

    gap = longest(recorded(step, tmp_path).gaps)
    assert gap.cause == "allocator" and gap.call in ("cudaMalloc", "cudaFree", "cuMemCreate", "cuMemMap", "cuMemUnmap", "cuMemSetAccess")


def test_a_pageable_copy_to_the_device(tmp_path: Path) -> None:
    host, x = torch.ones(64 << 20), torch.ones(1024, device="cuda")
    target = torch.empty(64 << 20, device="cuda")

    def step() -> None:
        x.add_(1)
        target.copy_(host)
        x.add_(1)

    found = recorded(step, tmp_path)
    (device,) = found.devices
    assert device.overlaps.exposed_copy_ns > 5 * MS
    assert any(gap.cause in ("copy", "synchronization") and gap.call in ("cudaMemcpyAsync", "cudaStreamSynchronize") for gap in found.gaps)


def test_the_data_loader(tmp_path: Path) -> None:
    class Slow(torch.utils.data.Dataset):
        def __len__(self) -> int:
            return 64

        def __getitem__(self, index: int) -> object:
            time.sleep(5e-3)
            return torch.ones(16)

    batches, x = iter(torch.utils.data.DataLoader(Slow(), batch_size=2)), torch.ones(16, device="cuda")

    def step() -> None:
        x.add_(next(batches)[0].cuda())

    gap = longest(recorded(step, tmp_path).gaps)
    assert gap.cause == "data_loader" and gap.call is not None and gap.call.startswith("enumerate(DataLoader)")


def test_compiling_in_a_step(tmp_path: Path) -> None:
    x = torch.ones(1024, device="cuda")
    made: list[object] = []

    def step() -> None:
        x.add_(1)
        torch._dynamo.reset()
        torch.compile(lambda value: value.sin().cos() + len(made))(x)
        made.append(None)

    gap = longest(recorded(step, tmp_path, steps=1).gaps)
    assert gap.cause == "first_use" and gap.duration_ns > 10 * MS


def test_nodes_of_a_graph(tmp_path: Path) -> None:
    x, graph = torch.ones(1024, device="cuda"), torch.cuda.CUDAGraph()
    x.add_(1)
    with torch.cuda.graph(graph):
        for _ in range(20):
            x.add_(1)

    found = recorded(graph.replay, tmp_path)
    inside = [gap for gap in found.gaps if gap.previous == gap.next]
    assert len([gap for gap in inside if gap.cause == "dependency"]) >= 38

"""Timing under other conditions than warm and alone: cold caches, inside a CUDA graph, and with everything around the call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from . import tree
from .environment import l2_bytes
from .judge_program import Timer, _elapsed_time, _Event, _perf_counter_ns, no_collection
from .loaders import Inputs

COLD, GRAPH, WHOLE = "cold L2", "graph", "end to end"
UNKNOWN_CACHE_BYTES = 64 * 2**20
MAX_CACHE_BYTES = 512 * 2**20
"""Some virtual machines report the cache of a whole socket; more than this is not streamed."""
MAX_COLD_CALLS = 4


class NotHere(Exception):
    """The condition cannot be had for this program; the text says why."""


class Condition:
    """One condition, prepared: `block` times samples of `calls` calls."""

    def __init__(self, name: str, timer: Timer) -> None:
        """Raises NotHere."""
        self.timer = timer
        self.device = timer.program.workload.device
        self.has_own_graph = False
        """GRAPH: its calls replay CUDA graphs of their own, which no other graph can hold; they are timed as they are."""
        self.calls = timer.ring_size
        self._sample: Callable[[int], tuple[float | None, float]]
        if name == COLD:
            self.calls = min(self.calls, MAX_COLD_CALLS)
            size = 2 * min(l2_bytes(self.device) or UNKNOWN_CACHE_BYTES, MAX_CACHE_BYTES)
            self._flushed = torch.zeros(size // 4, dtype=torch.int32, device=self.device)
            self._sample = self._cold_on_gpu if self.device == "cuda" else self._cold_on_cpu
        elif name == GRAPH:
            if self.device != "cuda":
                raise NotHere("CUDA graphs need a GPU")
            self.has_own_graph = _replays(timer)
            if self.has_own_graph:
                self._sample = self._as_it_is
            else:
                self._graph, self._outputs = _captured(timer)
                self._sample = self._replayed
        elif name == WHOLE:
            self.calls = 1
            self._devices: dict[int, torch.device] = {}
            self._host = [tree.map_tensors(self._on_host, inputs) for inputs in timer.pool]
            self._sample = self._whole
        else:
            raise NotHere(f"no condition is called {name}")

    def block(self, samples: int, first: int) -> tuple[list[float], list[float]]:
        """As Timer.block."""
        events: list[float] = []
        hosts: list[float] = []
        with no_collection():
            for sample in range(samples):
                event_ns, host_ns = self._sample(first + sample * self.calls)
                hosts.append(host_ns)
                if event_ns is not None:
                    events.append(event_ns)
        return events, hosts

    def _cold_on_gpu(self, first: int) -> tuple[float | None, float]:
        self.timer.refill_for(first)
        pairs = [(_Event(enable_timing=True), _Event(enable_timing=True)) for _ in range(self.calls)]
        begin = _perf_counter_ns()
        for call, (start, end) in zip(self.timer.callers, pairs, strict=False):
            self._flushed.zero_()  # not waited for: meanwhile the host launches the call, so that its latency is hidden as in a full queue
            start.record()
            call()
            end.record()
        self.timer.program.synchronize()
        host = float(_perf_counter_ns() - begin)
        return sum(_elapsed_time(start, end) for start, end in pairs) * 1e6, host

    def _cold_on_cpu(self, first: int) -> tuple[float | None, float]:
        self.timer.refill_for(first)
        spent = 0
        for call in self.timer.callers[: self.calls]:
            self._flushed.add_(1)  # read and written: a plain fill may go past the caches
            begin = _perf_counter_ns()
            call()
            spent += _perf_counter_ns() - begin
        return None, float(spent)

    def _replayed(self, first: int) -> tuple[float | None, float]:
        self.timer.refill_for(first)
        start, end = _Event(enable_timing=True), _Event(enable_timing=True)
        begin = _perf_counter_ns()
        start.record()
        self._graph.replay()
        end.record()
        self.timer.program.synchronize()
        host = float(_perf_counter_ns() - begin)
        return _elapsed_time(start, end) * 1e6, host

    def _as_it_is(self, first: int) -> tuple[float | None, float]:
        self.timer.refill_for(first)
        return self.timer.sample()

    def _whole(self, first: int) -> tuple[float | None, float]:
        """Inputs from the host's (pageable) memory into new tensors, the call, its outputs back to the host."""
        program = self.timer.program
        source = self._host[first % len(self._host)]
        program.synchronize()
        begin = _perf_counter_ns()
        args, kwargs = tree.map_tensors(self._back, source)
        output = program.workload.step(program.fn, args, kwargs)
        kept = [leaf.to("cpu") for _, leaf in program.leaves(output, buffers=False)]
        program.synchronize()
        spent = float(_perf_counter_ns() - begin)
        kept.clear()
        return None, spent

    def _on_host(self, tensor: torch.Tensor) -> torch.Tensor:
        copy = tensor.detach().to("cpu", copy=True).requires_grad_(tensor.requires_grad)
        self._devices[id(copy)] = tensor.device
        return copy

    def _back(self, tensor: torch.Tensor) -> torch.Tensor:
        """To the device it came from: some inputs (sequence lengths) belong on the CPU."""
        return tensor.detach().to(self._devices[id(tensor)], copy=True).requires_grad_(tensor.requires_grad)


def _replays(timer: Timer) -> bool:
    """Whether a call replays a CUDA graph, of torch's own class."""
    seen: list[bool] = []
    replay = torch.cuda.CUDAGraph.replay

    def noticed(graph: torch.cuda.CUDAGraph) -> None:
        seen.append(True)
        replay(graph)

    torch.cuda.CUDAGraph.replay = noticed
    try:
        timer.callers[0]()
    finally:
        torch.cuda.CUDAGraph.replay = replay
    timer.program.synchronize()
    return bool(seen)


def _captured(timer: Timer) -> tuple[Any, list[Any]]:
    """All calls of the ring as one CUDA graph, on the ring's own tensors (refills reach it), and its outputs. Raises NotHere."""
    try:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for call in timer.callers[:2]:
                call()
        torch.cuda.current_stream().wait_stream(side)
        timer.program.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            outputs = [call() for call in timer.callers]
        graph.replay()
        timer.program.synchronize()
        if not _same_layouts(timer.ring):
            raise NotHere("the inputs' shapes follow the seed, and a graph's are fixed")
    except NotHere:
        raise
    except Exception as error:
        raise NotHere(f"cannot be captured: {' '.join(str(error).split())[:200]}") from error
    return graph, outputs


def _same_layouts(ring: list[Inputs]) -> bool:
    shapes = [[(leaf.shape, leaf.dtype) for _, leaf in tree.leaves(inputs)] for inputs in ring]
    return all(one == shapes[0] for one in shapes)

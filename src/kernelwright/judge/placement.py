"""Both programs on the same cores while they are timed."""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Callable, Iterator, Sequence


@contextlib.contextmanager
def same_cores(processes: Sequence[int], threads: Sequence[int]) -> Iterator[Callable[[], None]]:
    """Bind both sides to the same random cores; undone at the end. Yields what draws them anew, before a quad.

    A scheduler keeps a busy process where it is, so each side would keep the luck of its core for the whole comparison.

    threads: of each side; 0 for a program on a GPU. On the CPU all threads of both are bound to one choice of as many cores as each side
    uses threads. Measured on two cores with a busy neighbour, the same program on both sides, one thread: 5 of 14 comparisons wrongly
    FASTER or SLOWER (by up to 15%), bound to one core 0 of 10 and within 1%. On a GPU the main threads, which launch, share one core
    (they take turns), another one after each draw. Does nothing where all cores are in use, where the two sides use different numbers of
    threads, or where the system cannot bind.
    """
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_setaffinity") else set()
    if len(set(threads)) != 1 or not 0 <= threads[0] < len(allowed):
        yield _nothing
        return
    on_gpu, drawn = threads[0] == 0, random.SystemRandom()

    def draw() -> None:
        cores = set(drawn.sample(sorted(allowed), threads[0] or 1))
        for process in processes:
            _bind(process, cores, main_only=on_gpu)

    try:
        draw()
        yield draw if on_gpu else _nothing
    finally:
        for process in processes:
            _bind(process, allowed, main_only=False)  # a thread that was born meanwhile too


def _nothing() -> None:
    """Where no cores are drawn anew."""


def _bind(process: int, cores: set[int], *, main_only: bool) -> None:
    with contextlib.suppress(OSError):
        for task in [str(process)] if main_only else os.listdir(f"/proc/{process}/task"):
            with contextlib.suppress(OSError, ValueError):
                os.sched_setaffinity(int(task), cores)

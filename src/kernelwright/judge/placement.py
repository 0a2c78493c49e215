"""Both programs on the same cores while they are timed on the CPU."""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Iterator, Sequence


@contextlib.contextmanager
def same_cores(processes: Sequence[int], threads: Sequence[int]) -> Iterator[None]:
    """Bind all threads of the processes to one random choice of as many cores as each side uses threads; undone at the end.

    A scheduler keeps a busy process where it is, so each side would keep the luck of its core for the whole comparison. Measured
    on two cores with a busy neighbour, the same program on both sides, one thread: 5 of 14 comparisons wrongly FASTER or SLOWER
    (by up to 15%), bound to one core 0 of 10 and within 1%. Does nothing where all cores are in use, where the two sides use
    different numbers of threads, or where the system cannot bind.
    """
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    allowed = os.sched_getaffinity(0)
    if len(set(threads)) != 1 or not 0 < threads[0] < len(allowed):
        yield
        return
    cores = set(random.SystemRandom().sample(sorted(allowed), threads[0]))
    try:
        for process in processes:
            _bind(process, cores)
        yield
    finally:
        for process in processes:
            _bind(process, allowed)


def _bind(process: int, cores: set[int]) -> None:
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{process}/task"):
            with contextlib.suppress(OSError, ValueError):
                os.sched_setaffinity(int(task), cores)

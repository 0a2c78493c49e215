"""The ideal schedule of copies beside kernels, against a slow simulation."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kernelwright.timeline.schedule import COMPUTE, DOWNLOAD, UPLOAD, overlapped_ns
from property_examples import examples

WORK = st.lists(st.tuples(st.sampled_from((COMPUTE, UPLOAD, DOWNLOAD)), st.integers(0, 2**40)), max_size=12)


def simulated(work: list[tuple[int, int]]) -> int:
    """One item after the other, each engine's clock by hand."""
    upload = compute = download = 0
    for kind, duration in work:
        if kind == UPLOAD:
            upload += duration
        elif kind == COMPUTE:
            compute = max(compute, upload) + duration
        else:
            download = max(download, compute) + duration
    return max(upload, compute, download)


def arrays(work: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([kind for kind, _ in work], dtype=np.int64), np.array([duration for _, duration in work], dtype=np.int64)


@given(WORK)
@examples(100)
def test_equals_the_simulation_and_is_never_longer_than_the_stream(work: list[tuple[int, int]]) -> None:
    assert overlapped_ns(*arrays(work)) == simulated(work) <= sum(duration for _, duration in work)


def test_an_upload_before_everything_saves_nothing_and_a_later_one_does() -> None:
    assert overlapped_ns(*arrays([(UPLOAD, 30), (COMPUTE, 70)])) == 100
    assert overlapped_ns(*arrays([(UPLOAD, 30), (COMPUTE, 70), (UPLOAD, 30), (COMPUTE, 70)])) == 170
    assert overlapped_ns(*arrays([(COMPUTE, 70), (DOWNLOAD, 30), (COMPUTE, 70)])) == 140

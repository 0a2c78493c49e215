"""Memory that a checked call finds: garbage, never an earlier right answer."""

import ctypes

import pytest
import torch

from float32_programs import in_a_fork
from kernelwright.probe.judge_tensors import DIRTY_BYTES, address_space_peak, dirty_malloc, may_be_dirty

ELEMENTS = 300_000


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="not glibc")
def test_a_block_from_anywhere_in_the_heap_holds_garbage_and_afterwards_none_is_filled_any_more():
    with dirty_malloc("cpu"):
        for size in (ELEMENTS, ELEMENTS // 20, ELEMENTS // 100):  # mapped anew, from the heap
            assert bool((torch.empty(size, dtype=torch.uint8) == 0x7F).all())
        assert float(torch.empty(ELEMENTS)[0]) > 1e38 and float(torch.empty(ELEMENTS, dtype=torch.float64)[0]) > 1e300
        assert not bool(torch.zeros(ELEMENTS).any())
    for size in (ELEMENTS, 7 * ELEMENTS, 100 * ELEMENTS):
        assert not bool((torch.empty(size, dtype=torch.uint8) == 0x7F).all())


def test_a_device_with_an_allocator_of_its_own_is_left_alone():
    with dirty_malloc("cuda"):
        assert not bool((torch.empty(ELEMENTS, dtype=torch.uint8) == 0x7F).all())


@pytest.mark.skipif(not address_space_peak(), reason="not Linux")
def test_a_call_that_takes_much_and_touches_little_is_not_made_with_dirty_memory():
    def check() -> None:
        before = address_space_peak()
        block = torch.empty(DIRTY_BYTES + (1 << 28), dtype=torch.uint8)
        assert not may_be_dirty(before, address_space_peak()) and may_be_dirty(before, before)
        del block

    in_a_fork(check)  # whose peak is its own: this process may have taken more before

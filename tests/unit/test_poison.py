"""Memory that a checked call finds: garbage, never an earlier right answer."""

import ctypes

import pytest
import torch

from kernelwright.probe.judge_tensors import dirty_malloc

ELEMENTS = 300_000


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="not glibc")
def test_a_block_from_anywhere_in_the_heap_holds_garbage_and_afterwards_none_is_filled_any_more():
    with dirty_malloc("cpu"):
        for size in (ELEMENTS, ELEMENTS // 20, ELEMENTS // 300):  # mapped anew, from the heap
            assert bool((torch.empty(size, dtype=torch.uint8) == 0x7F).all())
        assert float(torch.empty(ELEMENTS)[0]) > 1e38 and float(torch.empty(ELEMENTS, dtype=torch.float64)[0]) > 1e300
        assert not bool(torch.zeros(ELEMENTS).any())
    kept = torch.zeros(ELEMENTS)
    place = kept.data_ptr()
    del kept
    again = torch.empty(ELEMENTS)
    assert again.data_ptr() != place or not bool((again.view(torch.uint8)[64:] == 0x7F).any())


def test_a_device_with_an_allocator_of_its_own_is_left_alone():
    with dirty_malloc("cuda"):
        assert not bool((torch.empty(ELEMENTS, dtype=torch.uint8) == 0x7F).all())

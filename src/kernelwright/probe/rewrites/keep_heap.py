"""Memory of large results on the CPU is kept for the next call instead of going back to the operating system and being faulted in anew.

glibc gives blocks above a threshold (at most 32 MiB, often 128 KiB) back at once; the kernel then clears every page of the next one.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any


def keep_heap(model: Callable[..., Any], _args: tuple[Any, ...], _kwargs: dict[str, Any]) -> Callable[..., Any]:
    """The model itself. The setting holds for the whole process and costs memory: freed results up to 1 GiB each stay with it."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    trim_threshold, mmap_threshold, most = -1, -3, 1 << 30  # numbers from glibc's malloc.h
    kept = mallopt is not None and (mallopt(mmap_threshold, most) or mallopt(mmap_threshold, 1 << 25)) and mallopt(trim_threshold, most)
    if not kept:  # older glibc: 32 MiB at most
        raise NotImplementedError("not applicable: the C library is not glibc, or refuses the setting")
    return model

"""How programs set TF32, through both of torch's interfaces, each for a process of its own."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable

import torch

backends = torch.backends


def older(precision: str, cudnn: bool) -> Callable[[], None]:
    def use() -> None:
        torch.set_float32_matmul_precision(precision)
        backends.cudnn.allow_tf32 = cudnn
    return use


def newer(**values: str) -> Callable[[], None]:
    def use() -> None:
        places = {"all": backends, "products": backends.cuda.matmul, "convolutions": backends.cudnn.conv, "rnn": backends.cudnn.rnn}
        for name, value in values.items():
            places[name].fp32_precision = value
    return use


# How a program sets them -> TF32 in products, convolutions, recurrent layers.
PROGRAMS = {
    "torch's defaults": (older("highest", True), (False, True, True)),
    "older, off": (older("highest", False), (False, False, False)),
    "older, on": (older("high", True), (True, True, True)),
    "older, bfloat16 parts": (older("medium", False), (True, False, False)),
    "newer, all off": (newer(all="ieee", convolutions="ieee", rnn="ieee"), (False, False, False)),
    "newer, all on": (newer(all="tf32"), (True, True, True)),
    "newer, products on": (newer(products="tf32"), (True, True, True)),
    "newer, convolutions off": (newer(convolutions="ieee"), (False, False, True)),
    "older, then newer": (lambda: (older("high", True)(), newer(products="ieee")())[0], (False, True, True)),
    "newer, apart": (newer(products="tf32", convolutions="ieee", rnn="tf32"), (True, False, True)),
}
UNTOUCHED = {"all": "none", "products": "none", "convolutions": "tf32", "rnn": "tf32"}
"""A new process's."""


def in_a_fork(check: Callable[[], None]) -> None:
    """The flags are the process's: each program has one of its own, and begins with what torch begins with."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            newer(**UNTOUCHED)()
            backends.mkldnn.matmul.fp32_precision = "none"  # the older interface sets it beside CUDA's: a test before may have
            check()
            code = 0
        finally:
            if code:
                traceback.print_exc()
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

"""What a spare worker imports before it is told of any candidate: what torch.compile needs at its first call, seconds of it."""

from __future__ import annotations

import contextlib
import importlib
import select

MODULES = ("torch._dynamo", "torch._inductor.compile_fx", "triton", "torch._inductor.runtime.triton_heuristics")
KEYS = (("torch._inductor.codecache", "torch_key"), ("torch._inductor.runtime.triton_compat", "triton_key"))
"""Functions without arguments that hash the compilers' own files for the names of what they cache, once a process."""


def load(fd: int) -> None:
    """Import them one after another, until there is something to read at fd: a command should not wait for what it may not need."""
    for module in MODULES:
        if _asked(fd):
            return
        with contextlib.suppress(Exception):  # what fails here, or is not there, fails again for the candidate that needs it
            importlib.import_module(module)
    for module, name in KEYS:
        if _asked(fd):
            return
        with contextlib.suppress(Exception):
            getattr(importlib.import_module(module), name)()


def _asked(fd: int) -> bool:
    return bool(select.select([fd], [], [], 0)[0])

"""What a spare worker imports before it is told of any candidate: what torch.compile needs at its first call, seconds of it."""

from __future__ import annotations

import contextlib
import importlib
import os
import select
from collections.abc import Iterator

MODULES = ("torch._dynamo", "torch._inductor.compile_fx", "triton", "torch._inductor.runtime.triton_heuristics")
WARM_POOL = "TORCH_WARM_POOL"
KEYS = (("torch._inductor.codecache", "torch_key"), ("torch._inductor.runtime.triton_compat", "triton_key"))
"""Functions without arguments that hash the compilers' own files for the names of what they cache, once a process."""


def load(fd: int) -> None:
    """Import them one after another, until there is something to read at fd: a command should not wait for what it may not need."""
    with _no_pool():
        _import(fd)


def _import(fd: int) -> None:
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


@contextlib.contextmanager
def _no_pool() -> Iterator[None]:
    """Older torch (2.5) starts its pool of processes that compile, one a core, when it is imported: here only once something compiles."""
    before = os.environ.get(WARM_POOL)
    os.environ[WARM_POOL] = "0"
    try:
        yield
    finally:
        os.environ.pop(WARM_POOL)
        os.environ.update({} if before is None else {WARM_POOL: before})


def _asked(fd: int) -> bool:
    return bool(select.select([fd], [], [], 0)[0])

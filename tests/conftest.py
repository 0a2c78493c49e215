"""What holds for all tests: those marked gpu are skipped where no GPU is visible, and nothing else ever is."""

from __future__ import annotations

import compileall
import gc
import os
import signal
import sys
from pathlib import Path

import pytest

os.environ["OMP_NUM_THREADS"] = "1"
"""Two files run at a time, and threads that wait for each other's cores take most of the time. Set before anything imports torch: a process
in which it has a pool of threads can't be forked (warm_start)."""


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell's background job, and so the programs that tests interrupt would be
    signal.signal(signal.SIGINT, signal.default_int_handler)

WRITES_NO_BYTE_CODE = sys.dont_write_bytecode
sys.dont_write_bytecode = False
"""While tests are collected, whatever the environment says: without byte code each run takes the asserts of all files apart anew."""


def pytest_configure() -> None:
    """The programs that tests start find byte code for all of kernelwright. Where the environment keeps Python from writing it, only what
    the collection imports had some, and each of hundreds of processes compiled the rest anew."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        compileall.compile_dir(Path(__file__).resolve().parents[1] / "src", quiet=2)


def pytest_collection_finish() -> None:
    """What is there by now stays to the end: the garbage collector need not look through it again, nor as often."""
    sys.dont_write_bytecode = WRITES_NO_BYTE_CODE
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)


@pytest.fixture(scope="session", autouse=True)
def own_surroundings(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Tests wait for each other, never for a real profile on this machine, and never change its clocks."""
    own = Path(tmp_path_factory.getbasetemp())
    shared = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
    os.environ["KERNELWRIGHT_CACHE"] = str(shared / "cache")  # the CPU's peaks are measured once
    os.environ["KERNELWRIGHT_LOCK"] = str(own / "device.lock")
    os.environ["KERNELWRIGHT_STATE"] = str(own / "state")
    os.environ["KERNELWRIGHT_CLOCKS"] = "none"
    # Inductor starts the C++ compiler for its own code alone: not to prepare headers, and not to try what this processor can do.
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # else it starts a process for that, which imports torch
    os.environ["TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS"] = os.environ["TORCHINDUCTOR_VEC_ISA_OK"] = "0"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """torch is asked, and imported, only if a test needs the answer."""
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if not marked:
        return
    import torch

    if torch.cuda.is_available():
        return
    for item in marked:
        item.add_marker(pytest.mark.skip(reason="no GPU is visible"))

"""A load for the GPU: matrix products in the workload's interpreter, for as long as the context lasts."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from ...model.workload import Device
from ..clockguard.switch import Refused
from ..interpreter import Interpreter
from ..process import spawn, terminate

Load = Callable[[], AbstractContextManager[None]]
START_S = 60.0
MAX_S = 60.0
"""The load ends by itself after this long, whatever becomes of us."""


def torch_load(find: Callable[[], Interpreter], device: Device) -> Load:
    """A load that starts when it is entered; raises Refused when it doesn't. find: finds the interpreter, asked only then."""

    @contextlib.contextmanager
    def load() -> Iterator[None]:
        interpreter = find()
        with tempfile.TemporaryDirectory(prefix="kernelwright-load-", ignore_cleanup_errors=True) as folder:
            log = Path(folder) / "load.log"
            process = spawn(interpreter.path, ["load", f"{MAX_S:g}", device], device=device, cwd=Path(folder), log_path=log)
            try:
                deadline = time.monotonic() + START_S
                while b"running\n" not in log.read_bytes():
                    if process.poll() is not None or time.monotonic() > deadline:
                        raise Refused(f"the load for finding the clock did not start in {interpreter.path}", "name a clock: --clocks MHZ")
                    time.sleep(0.05)
                yield
            finally:
                terminate(process, grace_s=0)

    return load

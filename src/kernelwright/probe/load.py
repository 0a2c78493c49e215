"""The `load` verb of the probe: keeps the device busy with the calibration's matrix product, so that the parent can watch its clocks.

argv: SECONDS DEVICE. Prints "running" once the first product is done.
"""

from __future__ import annotations

import sys
import time

SIZES = {"cuda": 8192, "cpu": 256}
BATCH = {"cuda": 20, "cpu": 1}
"""Products between two looks at the time: enough to keep the queue of a GPU full."""


def main(argv: list[str]) -> int:
    """Run for argv[0] seconds on device argv[1]; returns the exit code."""
    import torch

    from . import calibrate, environment, timers

    device = environment.resolve_device(argv[1])
    wide = device == "cuda" and torch.cuda.get_device_capability(0) >= (8, 0)
    with torch.no_grad():
        product = calibrate.product(SIZES[device], torch.bfloat16 if wide else torch.float32, device)
        product()
        timers.synchronize(device)
        sys.stdout.write("running\n")
        sys.stdout.flush()
        end = time.monotonic() + float(argv[0])
        while time.monotonic() < end:
            for _ in range(BATCH[device]):
                product()
            timers.synchronize(device)
    return 0

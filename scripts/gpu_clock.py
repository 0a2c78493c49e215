#!/usr/bin/env python3
"""Lock, reset or show the GPU's clocks by hand."""

import sys

sys.dont_write_bytecode = True  # an installed plugin stays as it was installed

from _entry import run  # noqa: E402

if __name__ == "__main__":
    run("gpu_clock")

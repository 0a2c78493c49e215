#!/usr/bin/env python3
"""Lock, reset or show the GPU's clocks by hand."""

from _entry import run

if __name__ == "__main__":
    run("gpu_clock")

#!/usr/bin/env python3
"""Write kernelwright.yaml from the workloads and versions that a folder has."""

import sys

sys.dont_write_bytecode = True  # an installed plugin stays as it was installed

from _entry import run  # noqa: E402

if __name__ == "__main__":
    run("init")

#!/usr/bin/env python3
"""What this machine can do, what is missing, and the exact fix."""

import sys

sys.dont_write_bytecode = True  # an installed plugin stays as it was installed

from _entry import run  # noqa: E402

if __name__ == "__main__":
    run("doctor")

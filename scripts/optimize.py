#!/usr/bin/env python3
"""Profile a workload, try improvements, judge them, keep the best, log and report."""

import sys

sys.dont_write_bytecode = True  # an installed plugin stays as it was installed

from _entry import run  # noqa: E402

if __name__ == "__main__":
    run("optimize")

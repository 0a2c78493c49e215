#!/usr/bin/env python3
"""Append to a kernel's development log, or show it."""

import sys

sys.dont_write_bytecode = True  # an installed plugin stays as it was installed

from _entry import run  # noqa: E402

if __name__ == "__main__":
    run("devlog")

#!/usr/bin/env python3
"""Holds the kernels of a project to its budgets; one that is broken exits 5."""

import sys

sys.dont_write_bytecode = True  # an installed plugin stays as it was installed

from _entry import run  # noqa: E402

if __name__ == "__main__":
    run("bench")

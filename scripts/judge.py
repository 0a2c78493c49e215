#!/usr/bin/env python3
"""Judge one candidate: correctness, A/B timing and audit; prints the verdict."""

import sys

sys.dont_write_bytecode = True  # an installed plugin stays as it was installed

from _entry import run  # noqa: E402

if __name__ == "__main__":
    run("judge")

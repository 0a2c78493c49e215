#!/usr/bin/env python3
"""One profile of one workload in one mode; prints the contract."""

import sys

sys.dont_write_bytecode = True  # an installed plugin stays as it was installed

from _entry import run  # noqa: E402

if __name__ == "__main__":
    run("profile_kernel")

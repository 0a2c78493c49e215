#!/usr/bin/env python3
"""Profiles, versions or directories side by side; a failed gate exits 5."""

import sys

sys.dont_write_bytecode = True  # an installed plugin stays as it was installed

from _entry import run  # noqa: E402

if __name__ == "__main__":
    run("compare")

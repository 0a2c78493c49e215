#!/usr/bin/env python3
"""What this machine can do, what is missing, and the exact fix."""

from _entry import run

if __name__ == "__main__":
    run("doctor")

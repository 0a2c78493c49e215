#!/usr/bin/env python3
"""Append to a kernel's development log, or show it."""

from _entry import run

if __name__ == "__main__":
    run("devlog")

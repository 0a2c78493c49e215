#!/usr/bin/env python3
"""Profile a workload, try improvements, judge them, keep the best, log and report."""

from _entry import run

if __name__ == "__main__":
    run("optimize")

#!/usr/bin/env python3
"""One profile of one workload in one mode; prints the contract."""

from _entry import run

if __name__ == "__main__":
    run("profile_kernel")

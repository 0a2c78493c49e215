#!/usr/bin/env python3
"""Judge one candidate: correctness, A/B timing and audit; prints the verdict."""

from _entry import run

if __name__ == "__main__":
    run("judge")

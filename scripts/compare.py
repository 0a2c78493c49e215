#!/usr/bin/env python3
"""Profiles, versions or directories side by side; a failed gate exits 5."""

from _entry import run

if __name__ == "__main__":
    run("compare")

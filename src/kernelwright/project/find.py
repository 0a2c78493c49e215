"""Which project a folder belongs to."""

from __future__ import annotations

from pathlib import Path

from .model import Project
from .reading import PROJECT_FILE, read_project


def find_file(start: Path) -> Path | None:
    """The nearest kernelwright.yaml in `start` or above."""
    start = start.absolute()
    return next((folder / PROJECT_FILE for folder in (start, *start.parents) if (folder / PROJECT_FILE).is_file()), None)


def find(start: Path) -> Project | None:
    """The project of `start` or the nearest folder above it; None without one. Raises BadInput for a file that is wrong."""
    file = find_file(start)
    return read_project(file) if file is not None else None

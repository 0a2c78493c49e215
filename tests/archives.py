"""Recordings that the tests unpack."""

from __future__ import annotations

import tarfile
from pathlib import Path


def unpack(file: Path, folder: Path) -> Path:
    """The folder, with the archive's files in it. Python before 3.10.12 and 3.11.4 has no filters."""
    with tarfile.open(file) as archive:
        archive.extractall(folder, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    return folder

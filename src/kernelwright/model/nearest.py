""""Did you mean": the existing name that a mistyped path comes nearest to."""

from __future__ import annotations

import difflib
import os
from itertools import islice
from pathlib import Path

MOST_NAMES = 5000
"""Of one folder that are looked at; a larger one gets no more than these."""
MOST_CHARACTERS = 255
"""No file system has longer names."""
LIKENESS = 0.6
"""Of difflib, 0..1: its own default."""


def did_you_mean(path: Path, fix: str, *, suffix: str = "", folders: bool = False) -> str:
    """`fix`, before it the name in that folder which is most like the missing one; `fix` alone where none is like it.

    Where the folder is missing too, the first missing part of the path is what is looked for. suffix: files that end in it alone
    (folders are then named only on the way). folders: folders are meant as well.
    """
    missing = path.absolute()
    while not os.path.lexists(missing.parent) and missing.parent != missing:
        missing = missing.parent
    on_the_way = missing != path.absolute()
    names = [name for name in _names(missing.parent, suffix, files=not on_the_way, folders=folders or on_the_way) if name != missing.name]
    lower = {_stem(name, suffix): name for name in reversed(names)}
    if len(missing.name) > MOST_CHARACTERS:
        return fix
    found = difflib.get_close_matches(_stem(missing.name, suffix), list(lower), n=1, cutoff=LIKENESS)
    if not found:
        return fix
    rest = path.absolute().relative_to(missing) if on_the_way else Path()
    return f"did you mean {missing.parent / lower[found[0]] / rest}? Otherwise {fix}"


def _names(folder: Path, suffix: str, *, files: bool, folders: bool) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.name for entry in islice(entries, MOST_NAMES)
                          if (folders if entry.is_dir() else files and entry.name.endswith(suffix)))
    except (OSError, ValueError):  # not to be read, or a name with a NUL character
        return []


def _stem(name: str, suffix: str) -> str:
    """What is compared: an ending that all have makes short names look alike."""
    return name.removesuffix(suffix).lower() if suffix else name.lower()

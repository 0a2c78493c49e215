"""Names of kernels and versions: which are allowed, how they come from file names, and their order."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

MAX_NAME_CHARACTERS = 100
_FUNCTION = re.compile(r"(.*\.py):([A-Za-z_][\w.]*)", re.DOTALL)
_NUMBERED = re.compile(r"(?:^|[_\-.])(v\d+\w*)$")


def bad_name(name: str) -> str | None:
    """What is wrong with a name that has to be typed and to name a folder; None: nothing."""
    if not name.strip() or len(name) > MAX_NAME_CHARACTERS:
        return f"has 1 to {MAX_NAME_CHARACTERS} characters"
    if name.startswith(("-", ".")):
        return f"begins with {name[0]!r}"
    if "/" in name or name.endswith(".py") or not name.isprintable() or re.search(r"\s", name):
        return "holds a slash, a blank or a sign that can't be shown, or ends in .py"
    return None


def is_path(text: str) -> bool:
    """Whether `versions:` means a file by it (FILE.py, FILE.py:FUNCTION, a pattern) and not a name."""
    return split_function(text)[0].endswith(".py")


def split_function(text: str) -> tuple[str, str | None]:
    """"a/b.py:f" -> ("a/b.py", "f"); without a function None stands for it."""
    match = _FUNCTION.fullmatch(text)
    return (match[1], match[2]) if match else (text, None)


def version_names(files: Sequence[Path], kernel: str) -> list[str]:
    """A name for each file: its trailing v<number>, else what follows the kernel's name, else its stem; where that gives the same name
    twice, the folder's name."""
    names = [_name(file.stem, kernel) for file in files]
    return names if len(set(names)) == len(names) else [file.parent.name for file in files]


def _name(stem: str, kernel: str) -> str:
    if match := _NUMBERED.search(stem):
        return match[1]
    rest = stem.removeprefix(kernel).lstrip("_-.")
    return rest if stem.startswith(kernel) and rest else stem


def natural(text: str | Path) -> list[tuple[int, int, str]]:
    """A sort key in which v2 stands before v10."""
    parts = [part for part in re.split(r"([0-9]{1,18})", str(text)) if part]
    return [(0, int(part), "") if part.isdigit() and part.isascii() else (1, 0, part) for part in parts]

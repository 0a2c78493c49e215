"""A version that the project file names as FILE.py:FUNCTION."""

from __future__ import annotations

import difflib
from typing import Any

from .failures import bad_input
from .importing import import_file

MOST_NAMES = 20


def find(file: str, name: str) -> Any:
    """What `name` (dots go into classes and modules) is in the file. Raises no_such_function with what the file has."""
    module = import_file(file)
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
        if found is None:
            names = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
            close = difflib.get_close_matches(name, names, n=1)
            raise bad_input("no_such_function", f"the file has no {name!r}", where=file,
                            fix=f"did you mean {close[0]}?" if close else f"it has: {', '.join(names[:MOST_NAMES]) or 'no functions'}")
    return found

"""Takes this machine out of texts that leave it: folders, the home folder, values of environment variables."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

SHORTEST_VALUE = 6
"""Shorter values of variables are words of every text (1, cuda, en_US)."""
REMOVED = "[removed]"
OURS = frozenset({"schema_version", "verdict", "precision", "declared_precision", "device_name", "torch_version", "environment", "timer",
                  "evidence", "method"})
"""Fields of a verdict that hold our own words or a version: a variable may have the same value (PYTHON_VERSION=3.12.3)."""
_FOLDERS = re.compile(r"(?<![\w.~/-])(?:file:///|/|~/|[A-Za-z]:\\)(?:[^\s/\\:'\"(),;|<>]+[/\\])+")
"""The folders of an absolute path; its last part stays."""


class Scrubber:
    """`text` and `document`: the same without what belongs to this machine."""

    def __init__(self, folders: Iterable[Path] = (), env: Mapping[str, str] | None = None) -> None:
        """folders: their names may hold blanks, so they are looked for as they are, before what merely looks like a path."""
        own = _forms(folders)
        known = _forms((Path.home(), Path.cwd(), Path(tempfile.gettempdir()), Path(sys.prefix)))
        values = {value for value in (os.environ if env is None else env).values()
                  if len(value) >= SHORTEST_VALUE and not os.path.isdir(value)}
        # Values first: a secret that looks like a path would lose its folders only.
        self._literal = [(value, REMOVED) for value in sorted(values, key=len, reverse=True)]
        self._literal += [(f"{path}/", "") for path in own] + [(f"{path}/", "~/") for path in known]
        self._literal += [(path, "~") for path in (*own, *known)]

    def text(self, value: str) -> str:
        """One line or many."""
        for words, instead in self._literal:
            value = value.replace(words, instead)
        return _FOLDERS.sub("", value)

    def document(self, value: Any) -> Any:
        """Every string of a JSON document but those of OURS and digests."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {key: item if key in OURS or key.endswith("sha256") else self.document(item) for key, item in value.items()}
        return [self.document(item) for item in value] if isinstance(value, (list, tuple)) else value


def _forms(paths: Iterable[Path]) -> list[str]:
    """As they are and with links followed, the longest first; never the root."""
    return sorted({str(form) for path in paths for form in (path, path.resolve()) if len(str(form)) > 1}, key=len, reverse=True)

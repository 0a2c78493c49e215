"""Golden files: tests/golden/expected/NAME. UPDATE_GOLDEN=1 writes them anew; read the difference before you keep it."""

from __future__ import annotations

import os
from pathlib import Path

EXPECTED = Path(__file__).parent / "golden" / "expected"


def assert_golden(name: str, text: str) -> None:
    """Hold `text` to the stored file of that name."""
    path = EXPECTED / name
    if os.environ.get("UPDATE_GOLDEN") == "1":
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert path.is_file(), f"{path} is missing; UPDATE_GOLDEN=1 writes it"
    assert text == path.read_text(encoding="utf-8")

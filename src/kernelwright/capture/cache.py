"""Where kernelwright keeps what it learns about a machine (calibrated peaks), per user."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def cache_dir() -> Path:
    """KERNELWRIGHT_CACHE, else the platform's per-user cache folder. Not created here."""
    override = os.environ.get("KERNELWRIGHT_CACHE")
    if override:
        return Path(override)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "kernelwright"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", str(Path.home()))) / "kernelwright" / "Cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kernelwright"

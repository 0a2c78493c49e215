"""Measured peaks, kept per device, torch version and driver-independent name, so that only the first run pays for them."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from ..model.capture import ProbePeak
from ..model.files import write_json_atomic
from .cache import cache_dir

NEEDED = {"bandwidth", "matmul:float32"}
"""What every roofline needs. A set without them was measured in trouble and is not kept."""
_PEAKS = TypeAdapter(tuple[ProbePeak, ...])


def load_peaks(key: str, device_name: str | None = None) -> tuple[ProbePeak, ...]:
    """Cached peaks; () when there are none, they are another device's than device_name, or the file is not readable."""
    try:
        document = json.loads(_file(key).read_text())
        peaks = _PEAKS.validate_python(document["peaks"])
        usable = device_name in (None, document["device_name"]) and {peak.name for peak in peaks} >= NEEDED
        return peaks if usable else ()
    except (OSError, ValueError, KeyError, TypeError, ValidationError):
        return ()


def store_peaks(key: str, device_name: str, peaks: Sequence[ProbePeak]) -> None:
    """Keep a complete set of peaks; a cache that can't be written costs time, not the run."""
    if not {peak.name for peak in peaks} >= NEEDED:
        return
    try:
        write_json_atomic(_file(key), {"key": key, "device_name": device_name, "peaks": [peak.model_dump() for peak in peaks]})
    except OSError:
        return


def forget_peaks(key: str) -> None:
    """Measure again next time."""
    with contextlib.suppress(OSError):
        _file(key).unlink(missing_ok=True)


def _file(key: str) -> Path:
    return cache_dir() / "peaks" / f"{hashlib.sha256(key.encode()).hexdigest()[:16]}.json"

"""Writes the probe's files whole or not at all."""

from __future__ import annotations

import gzip
import json
import math
import os
import tempfile
from collections.abc import Callable
from typing import Any, BinaryIO


def write_json(path: str, document: Any) -> None:
    """One JSON document; numbers that are not finite become null (JSON has none). Raises OSError."""
    text = json.dumps(_finite(document), ensure_ascii=False, allow_nan=False)
    _replace(path, lambda file: file.write(text.encode("utf-8", "surrogatepass").decode("utf-8", "replace").encode("utf-8")))


def write_json_gz(path: str, document: Any) -> None:
    """One gzip'd JSON document. Raises OSError."""
    data = json.dumps(document, ensure_ascii=True, allow_nan=False).encode()
    _replace(path, lambda file: file.write(gzip.compress(data, compresslevel=1, mtime=0)))


def write_bytes(path: str, data: bytes) -> None:
    """One file. Raises OSError."""
    _replace(path, lambda file: file.write(data))


def compress(source: str, path: str, sought: bytes) -> bool:
    """gzip `source` to `path` and delete it; True when the bytes `sought` occur in it. Level 1: 5 times faster for 20% more bytes."""
    found, tail = False, b""

    def write(file: BinaryIO) -> None:
        nonlocal found, tail
        with open(source, "rb") as plain, gzip.GzipFile(fileobj=file, mode="wb", compresslevel=1, filename="", mtime=0) as packed:
            while block := plain.read(1 << 20):
                found = found or sought in tail + block
                tail = block[-len(sought):]
                packed.write(block)

    _replace(path, write)
    os.unlink(source)
    return found


def _replace(path: str, write: Callable[[BinaryIO], Any]) -> None:
    handle, temporary = tempfile.mkstemp(prefix=f".{os.path.basename(path)}.", suffix=".partial", dir=os.path.dirname(path))
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value

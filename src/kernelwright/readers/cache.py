"""Large traces are read once: their tables are kept in the user's cache folder, by what the file holds, and mapped into memory next time.

A file that was seen before and has not changed since (size, times, inode) is not even read to find its entry. Entries that are damaged
are thrown away and made anew; the least recently used ones make room for new ones. Where pyarrow, or a folder to write to, is missing,
traces are just read.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import importlib.util
import json
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from ..capture.cache import cache_dir
from ..model.files import PARTIAL, write_text_atomic
from ..model.trace import Trace
from .arrow import LAYOUT_VERSION, Unfit, read_traces, write_traces
from .kineto import READER_VERSION, read_kineto
from .packed import DEFAULT_MAX_BYTES

MIN_BYTES = 16 << 20
"""Smaller files are read faster than an entry is written."""
LIMIT_VARIABLE = "KERNELWRIGHT_TRACE_CACHE_MB"
DEFAULT_LIMIT_MB = 4096
_SETTLED_NS = 2 * 10**9
"""A file that changed this shortly before it was hashed may have changed again without a sign."""
_ABANDONED_S = 24 * 3600
Traces = tuple[Trace | None, ...]


def cached_kineto(path: Path, *, max_bytes: int = DEFAULT_MAX_BYTES, need_steps: bool = True, steps_range: str | None = None) -> Trace:
    """read_kineto, by way of the cache. Raises as it does."""
    def read() -> Traces:
        return (read_kineto(path, max_bytes=max_bytes, need_steps=need_steps, steps_range=steps_range),)

    trace = cached(path, read, version=f"kineto {READER_VERSION} {need_steps} {steps_range!r}")[0]
    assert trace is not None
    return trace


def cached(path: Path, read: Callable[[], Sequence[Trace | None]], *, version: str) -> Traces:
    """What read() gives for the file at `path`, from the cache where it can be had.

    version: the reader, its version and its options: whatever makes it give something else for the same file. Raises as read() does.
    """
    limit = limit_bytes()
    try:
        known = path.stat().st_size >= MIN_BYTES and limit > 0 and importlib.util.find_spec("pyarrow") is not None
        entry = _entry(_folder(), path, version) if known else None
    except OSError:
        entry = None
    if entry is None:
        return tuple(read())
    found = _load(entry, path.name)
    if found is None:
        found = tuple(read())
        with contextlib.suppress(OSError, Unfit):
            _store(entry, found, limit)
    return found


def limit_bytes() -> int:
    """The cache's size, KERNELWRIGHT_TRACE_CACHE_MB or 4 GiB; 0 is none."""
    text = os.environ.get(LIMIT_VARIABLE, "")
    return (int(text) if text.isdecimal() and len(text) < 12 else DEFAULT_LIMIT_MB) << 20


def _load(entry: Path, file_name: str) -> Traces | None:
    if not entry.exists():
        return None
    try:
        found = read_traces(entry)
    except (OSError, Unfit):
        with contextlib.suppress(OSError):
            entry.unlink()
        return None
    with contextlib.suppress(OSError):
        os.utime(entry)
    return tuple(None if trace is None else dataclasses.replace(trace, source=file_name) for trace in found)


def _store(entry: Path, traces: Traces, limit: int) -> None:
    """Raises OSError, Unfit; nothing half-written stays."""
    handle, name = tempfile.mkstemp(prefix=f".{entry.name[:16]}.", suffix=PARTIAL, dir=entry.parent)
    os.close(handle)
    written = Path(name)
    try:
        write_traces(written, traces)
        size = written.stat().st_size
        if size <= limit:
            _make_room(entry.parent, limit - size)
            os.replace(written, entry)
    finally:
        written.unlink(missing_ok=True)


def _make_room(folder: Path, limit: int) -> None:
    """Remove the least recently used entries until the others fit into `limit` bytes, and what killed processes left."""
    entries = []
    for path in folder.iterdir():
        with contextlib.suppress(OSError):
            about = path.stat()
            if path.suffix == ".arrow":
                entries.append((about.st_mtime, about.st_size, path))
            elif time.time() - about.st_mtime > _ABANDONED_S and (path.name.endswith(PARTIAL) or path.suffix == ".seen"):
                path.unlink()
    total = sum(size for _, size, _ in entries)
    for _, size, path in sorted(entries):
        if total <= limit:
            break
        with contextlib.suppress(OSError):
            path.unlink()
            total -= size


def _folder() -> Path:
    """Made for its owner alone: traces may tell of the user's work. Raises OSError."""
    folder = cache_dir() / "traces"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder


def _entry(folder: Path, path: Path, version: str) -> Path:
    name = hashlib.sha256(f"{_content(folder, path)} {version} {LAYOUT_VERSION}".encode()).hexdigest()[:40]
    return folder / f"{name}.arrow"


def _content(folder: Path, path: Path) -> str:
    """The hash of what the file holds; taken from the note about it where the file is as it was then."""
    about = path.stat()
    signs = [about.st_size, about.st_mtime_ns, about.st_ctime_ns, about.st_ino, about.st_dev]
    note = folder / f"{hashlib.sha256(os.fsencode(path.resolve())).hexdigest()[:40]}.seen"
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        known = json.loads(note.read_text())
        if known["signs"] == signs:
            return str(known["content"])
    begun, content = time.time_ns(), _hashed(path)
    if max(about.st_mtime_ns, about.st_ctime_ns) < begun - _SETTLED_NS:
        with contextlib.suppress(OSError):
            write_text_atomic(note, json.dumps({"signs": signs, "content": content}) + "\n")
    return content


def _hashed(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()

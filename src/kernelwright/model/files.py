"""Files that are either there whole or not there."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from .errors import KernelwrightError, NotWritable

PARTIAL = ".partial"
"""How the names of files end that are being written (".NAME.xxxxxxxx.partial"); the probe's too."""


def remove_partial(folder: Path) -> None:
    """Remove what killed processes were writing in `folder` and below. Only where nobody writes now."""
    for path in folder.rglob(f".*{PARTIAL}"):
        with contextlib.suppress(OSError):
            path.unlink()


def write_bytes_atomic(path: Path, data: bytes) -> Path:
    """Write `data` so that a reader (or a crash) never sees half of it. Raises NotWritable, which is an OSError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _replace(path, data)
    except OSError as error:
        raise NotWritable(error, path) from error
    return path


def _replace(path: Path, data: bytes) -> None:
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name[:40]}.", suffix=PARTIAL, dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise


def write_text_atomic(path: Path, text: str) -> Path:
    """`write_bytes_atomic` of UTF-8 text with "\\n" line ends."""
    return write_bytes_atomic(path, text.encode("utf-8"))


def write_json_atomic(path: Path, document: Any) -> Path:
    """Indented JSON; refuses NaN and infinity (they are not JSON)."""
    return write_text_atomic(path, json.dumps(document, indent=1, allow_nan=False, ensure_ascii=False) + "\n")


def check_writable(folder: Path, size_bytes: int = 1 << 16) -> None:
    """Raises NotWritable where a file of this size can't be written into the folder."""
    try:
        write_bytes_atomic(folder / "writable", b"\0" * size_bytes).unlink(missing_ok=True)
    except OSError as error:
        raise NotWritable(error, folder) from error


def leave_error(folder: Path, error: KernelwrightError) -> None:
    """error.json in the folder of a run that failed; on a full disk there is none, and the error itself stays the one that is told."""
    with contextlib.suppress(OSError):
        write_json_atomic(folder / "error.json", error.as_dict())


DOCUMENTS = ("error.json", "profile.json", "ranks.json", "params.json", "report.md", "report-verbose.md", "contract.md", "top.md",
             "timeline.html", "trace.perfetto.gz", "memory_timeline.csv", "roofline.svg", "roofline.png")
"""What a profile's folder holds beside raw/."""


MAX_READ_BYTES = 10_000_000


def begin_profile(folder: Path) -> None:
    """Make the folder and its raw/; the documents of an earlier run into it go, so that those of a run that fails are never taken for its
    own. In a folder where no run has been they are somebody else's, and stay. Raises OSError."""
    earlier = _had_a_run(folder)
    (folder / "raw").mkdir(parents=True, exist_ok=True)
    for name in DOCUMENTS if earlier else ():
        (folder / name).unlink(missing_ok=True)


def _had_a_run(folder: Path) -> bool:
    """By what runs leave: a request or result in raw/, a profile or its params.json, the error.json of one that failed."""
    if any((folder / "raw" / name).is_file() for name in ("request.json", "result.json")):
        return True
    return any(wanted <= _keys(folder / name) for name, wanted in
               (("params.json", {"kernel", "mode", "workload"}), ("error.json", {"code", "message", "where", "fix"}),
                ("profile.json", {"schema_version", "capture_metadata"})))


def _keys(file: Path) -> set[str]:
    """Of a JSON object; none of anything else."""
    try:
        if file.stat().st_size > MAX_READ_BYTES:
            return set()
        document = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return set()
    return set(document) if isinstance(document, dict) else set()


def _umask() -> int:
    value = os.umask(0)
    os.umask(value)
    return value

"""The two files of a development log. Lines are only ever appended to the .jsonl; the .md is rendered from it whole."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from filelock import FileLock, Timeout
from pydantic import ValidationError

from ..model.errors import BadInput, NotWritable
from ..model.files import write_bytes_atomic, write_text_atomic
from ..model.profile import Profile
from ..model.workload import WorkloadRef
from ..report.text import cell
from .chart import versions_svg
from .claims import refuse_contradictions
from .entry import DevlogEntry, make_entry, render_entry

SUFFIX = ".devlog"
LOCK_WAIT_S = 30.0
_OUR_CHART, _CHART_HEAD_BYTES = b"kernelwright", 4096
_MARKER = "<!-- Rendered by kernelwright from the .jsonl beside it; edits here are lost. Body sha256: {} -->"
_MARKER_LINE = re.compile(re.escape(_MARKER).replace(r"\{\}", "([0-9a-f]{64})"))


@dataclass(frozen=True)
class DevlogFiles:
    """The source for programs and what is rendered from it for people."""

    jsonl: Path
    markdown: Path

    @property
    def chart(self) -> Path:
        """Time of a call over the versions; there once two were measured under the same conditions."""
        return self.markdown.with_suffix(".versions.svg")

    @classmethod
    def of(cls, log: Path) -> DevlogFiles:
        """Both files, from either one's path. Raises BadInput for another suffix or a folder."""
        if log.is_dir():
            raise BadInput("log_is_folder", "is a folder, and a log is a file", where=str(log.absolute()),
                           fix=f"name a file such as NAME{SUFFIX}.md")
        if log.suffix not in (".md", ".jsonl"):
            raise BadInput("log_name", "a log's name ends in .md or .jsonl", where=str(log.absolute()),
                           fix=f"name a file such as NAME{SUFFIX}.md")
        path = log.absolute()
        return cls(path.with_suffix(".jsonl"), path.with_suffix(".md"))


def default_log(kernel: str, out: Path) -> Path:
    """Where a kernel's log is without a project file: <out>/devlog/<kernel>.devlog.md."""
    safe = re.sub(r"[^A-Za-z0-9._=-]+", "_", kernel).strip("._")[:100] or "unnamed"
    return out / "devlog" / f"{safe}{SUFFIX}.md"


def log_for(workload: WorkloadRef, out: Path) -> Path:
    """Where the log of a workload is: as its project file says, else `default_log`."""
    return workload.devlog or default_log(workload.name, out)


def add_entry(profile: Profile, log: Path, *, issues: Sequence[str] = (), insights: Sequence[str] = (),
              extra: dict[str, Any] | None = None, check_notes: bool = False) -> DevlogEntry:
    """Append the entry of `profile` to `log` and render the Markdown again. Safe beside other writers, and in a crash.

    log: the .md or the .jsonl file; both are made where missing. extra: JSON values kept with the entry.
    check_notes: hold what issues and insights claim against the profile (somebody wrote them).
    Raises BadInput for a note that contradicts the profile, and for a log that is not ours, was edited by hand, can't be written, or
    stays locked.
    """
    files = DevlogFiles.of(log)
    try:
        files.jsonl.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(str(files.jsonl.with_name(f".{files.jsonl.name}.lock")), timeout=LOCK_WAIT_S):
            _refuse_foreign(files)
            entries, _ = read_log(files.jsonl)
            entry = make_entry(profile, entries, issues=issues, insights=insights, extra=extra)
            if check_notes:
                refuse_contradictions(entry, entries, {"--issue": tuple(issues), "--insight": tuple(insights)})
            _append(files.jsonl, entry)
            entries, notes = read_log(files.jsonl)
            write_text_atomic(files.markdown, _document(entries, notes, _draw(entries, files.chart)))
    except Timeout as error:
        raise BadInput("log_locked", f"stays locked by another writer for {LOCK_WAIT_S:.0f} s", where=str(files.jsonl),
                       fix="try again when the other run has ended") from error
    except OSError as error:
        raise NotWritable(error, files.jsonl, fix="name another file with --log") from error
    return entry


def show(log: Path) -> str:
    """The log as Markdown, rendered from the .jsonl. Raises BadInput when there is none or it can't be read."""
    files = DevlogFiles.of(log)
    if not files.jsonl.is_file():
        raise BadInput("no_log", "no such development log", where=str(files.jsonl), fix="`devlog.py add PROFILE_DIR` starts one")
    try:
        return _body(*read_log(files.jsonl), files.chart.name if files.chart.is_file() and _is_ours(files.chart) else None)
    except OSError as error:
        raise BadInput("log_unreadable", f"can't be read: {error.strerror or error}", where=str(files.jsonl),
                       fix="make it readable, or name another file with --log") from error


def read_log(jsonl: Path) -> tuple[list[DevlogEntry], list[str]]:
    """All readable entries in order, and a note on each line that is not (a writer was killed half-way).

    A missing file is an empty log. Raises BadInput when not one line is an entry: then it is not a log. Raises OSError.
    """
    if not jsonl.exists():
        return [], []
    entries: list[DevlogEntry] = []
    notes: list[str] = []
    for number, line in enumerate(jsonl.read_bytes().split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            entries.append(DevlogEntry.model_validate_json(line))
        except ValidationError:
            notes.append(f"line {number} of {jsonl.name} is cut short or no entry, and was left out")
    if notes and not entries and (len(notes) > 1 or not _begins_as_entry(jsonl)):
        raise BadInput("not_a_log", "holds no development log", where=str(jsonl), fix="name another file with --log")
    return entries, notes


def _begins_as_entry(jsonl: Path) -> bool:
    with jsonl.open("rb") as file:
        head = file.read(len(_FIRST_BYTES))
    return _FIRST_BYTES.startswith(head)


_FIRST_BYTES = b'{"schema_version":'
"""How every line begins: a first line cut short is told from a foreign file by it."""


def _append(jsonl: Path, entry: DevlogEntry) -> None:
    """One write of one whole line, synced. A last line that was cut short is ended first, and stays."""
    line = entry.model_dump_json().encode() + b"\n"
    descriptor = os.open(jsonl, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
    size = os.fstat(descriptor).st_size
    try:
        if size and os.pread(descriptor, 1, size - 1) != b"\n":
            line = b"\n" + line
        while line:
            line = line[os.write(descriptor, line):]
        os.fsync(descriptor)
    except OSError:  # a full disk takes half a line
        os.ftruncate(descriptor, size)
        raise
    finally:
        os.close(descriptor)


def _refuse_foreign(files: DevlogFiles) -> None:
    """The Markdown is written over, so it must be one that we rendered and nobody changed."""
    if not files.markdown.exists():
        return
    head, _, body = files.markdown.read_text(encoding="utf-8", errors="replace").partition("\n")
    match = _MARKER_LINE.fullmatch(head.strip())
    if match is None and (head or body):
        raise BadInput("foreign_log", "exists and was not made by kernelwright", where=str(files.markdown),
                       fix="name another file with --log")
    if match is not None and match[1] != _digest(body):
        raise BadInput("edited_log", "was edited by hand, and the next entry would undo that", where=str(files.markdown),
                       fix="bring notes in with --insight, and delete or move this file: it is rendered from the .jsonl")


def _commit(entry: DevlogEntry) -> str:
    commit = entry.extra.get("commit")
    return f", commit {cell(commit, 60)}" if isinstance(commit, str) else ""


def _is_ours(chart: Path) -> bool:
    with chart.open("rb") as file:
        return _OUR_CHART in file.read(_CHART_HEAD_BYTES)


def _draw(entries: Sequence[DevlogEntry], file: Path) -> str | None:
    """The name of the chart; None where there is nothing to draw, a picture of somebody else's has its name, or matplotlib does not work:
    that costs the chart and no entry."""
    if file.exists() and not _is_ours(file):
        return None
    try:
        svg = versions_svg(entries)
    except (ImportError, AttributeError, ArithmeticError, LookupError, RuntimeError, TypeError, ValueError):
        return None
    if svg is not None:
        write_bytes_atomic(file, svg)
    return file.name if svg is not None else None


def _document(entries: Sequence[DevlogEntry], notes: Sequence[str], chart: str | None) -> str:
    body = _body(entries, notes, chart)
    return f"{_MARKER.format(_digest(body))}\n{body}"


def _digest(body: str) -> str:
    return hashlib.sha256(body.encode("utf-8", "replace")).hexdigest()


def _body(entries: Sequence[DevlogEntry], notes: Sequence[str], chart: str | None) -> str:
    kernels = dict.fromkeys(entry.kernel for entry in entries)
    parts = [f"# Development log: {cell(', '.join(kernels) or 'empty', 200)}\n"]
    if chart is not None:
        parts.append(f"![Time of a call over the versions]({quote(chart)})\n")
    for entry in entries:
        name = f"{entry.kernel} {entry.version}" if entry.version else entry.kernel
        parts.append(f"## {cell(name, 120)}, {entry.mode}, {cell(entry.captured_utc, 40)}{_commit(entry)}\n\n"
                     f"{render_entry(entry)}")
    parts += [f"Note: {cell(note)}\n" for note in notes]
    return "\n".join(parts)

"""A scratch copy of a working folder, so that what a script writes beside its files lands elsewhere.

Files are cloned where the file system can (copy-on-write), copied up to a bound, and linked beyond it. A link leads to the
original: a script that writes to that very file changes it. Linked names are reported.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from dataclasses import dataclass, field
from pathlib import Path

MOST_BYTES = 1 << 30
LARGEST_BYTES = 64 << 20
MOST_FILES = 20_000
LINKED_FOLDERS = frozenset({".git", ".hg", ".svn", ".venv", "venv", "env", "node_modules", ".tox", ".mypy_cache", "site-packages"})
"""Never copied: large, and nothing that a training script writes to."""
_FICLONE = 0x40049409
"""ioctl of linux/fs.h: share the blocks of another file until one of the two is written."""


@dataclass
class Sandbox:
    """A scratch folder that shows the contents of `origin`."""

    origin: Path
    folder: Path
    linked: list[str] = field(default_factory=list)
    """Names, relative to the folder, that lead to the originals."""
    _bytes: int = 0
    _files: int = 0

    @classmethod
    def make(cls, origin: Path, folder: Path, *, without: Path) -> Sandbox:
        """Fill `folder` from `origin`. without: a folder inside origin that is left out (our own results). Raises OSError."""
        sandbox = cls(origin.resolve(), folder)
        folder.mkdir(parents=True)
        sandbox._fill(sandbox.origin, folder, without.resolve())
        return sandbox

    def translate(self, path: Path) -> Path:
        """Where a path inside the origin is in the sandbox; any other path as it is, and one that leads out through a link too."""
        path = Path(os.path.abspath(path))
        if not path.is_relative_to(self.origin):
            return path
        inside = self.folder / path.relative_to(self.origin)
        return inside if inside.exists() else path

    def remove(self) -> None:
        """Delete the scratch folder (never what links lead to)."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _fill(self, source: Path, target: Path, without: Path) -> None:
        for entry in sorted(os.scandir(source), key=lambda item: item.name):
            here, there = Path(entry.path), target / entry.name
            if here == without or here == self.folder:
                continue
            if entry.is_symlink():
                os.symlink(os.path.realpath(here), there)
                self.linked.append(str(there.relative_to(self.folder)))
            elif entry.is_dir():
                self._folder(here, there, without)
            elif entry.is_file():
                self._file(here, there, entry.stat())

    def _folder(self, here: Path, there: Path, without: Path) -> None:
        readable = os.access(here, os.R_OK | os.X_OK)
        if not readable or here.name in LINKED_FOLDERS or self._files >= MOST_FILES or self._bytes >= MOST_BYTES:
            self._link(here, there)
            return
        there.mkdir()
        self._fill(here, there, without)

    def _file(self, here: Path, there: Path, status: os.stat_result) -> None:
        self._files += 1
        if self._files <= MOST_FILES and os.access(here, os.R_OK):
            if _clone(here, there):
                return
            if status.st_size <= LARGEST_BYTES and self._bytes + status.st_size <= MOST_BYTES:
                self._bytes += status.st_size
                shutil.copy2(here, there)
                return
        self._link(here, there)

    def _link(self, here: Path, there: Path) -> None:
        os.symlink(here, there)
        self.linked.append(str(there.relative_to(self.folder)))


def _clone(here: Path, there: Path) -> bool:
    """True when the file system could share the blocks (btrfs, XFS with reflinks, ...)."""
    try:
        import fcntl
    except ImportError:
        return False
    with here.open("rb") as source, there.open("xb") as target, contextlib.suppress(OSError):
        fcntl.ioctl(target.fileno(), _FICLONE, source.fileno())
        os.fchmod(target.fileno(), stat.S_IMODE(os.fstat(source.fileno()).st_mode))
        return True
    there.unlink()
    return False

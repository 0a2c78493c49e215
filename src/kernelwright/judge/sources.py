"""The files that a workload and a candidate consist of: what their own imports and the names in their source lead to."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ..model.errors import BadInput
from ..model.workload import WorkloadRef
from ..project.named import named_files
from .untrusted import open_regular

CANDIDATES = "candidates"
"""A candidate in a folder of this name finds its parent folder's modules too (probe/importing.py)."""
MAX_FILES = 500
MAX_TOTAL_BYTES = 64 * 2**20


@dataclass(frozen=True)
class Sources:
    """Read before anything of them runs."""

    workload: str
    """Member name of the workload's file, e.g. "code/w.py"."""
    candidate: str
    source: str | None = None
    """Of the file that holds the version judged against, where the workload's own does not (a function of another file)."""
    import_from: tuple[str, ...] = ()
    """Folders in the bundle that its files import from beside their own."""
    files: dict[str, bytes] = field(default_factory=dict)
    folders: tuple[Path, ...] = ()
    """Where they came from."""


def collect(workload: WorkloadRef, candidate: Path) -> Sources:
    """The workload's file (and its version's, where that is another), the candidate's, and the modules beside them and under the project's
    `import_from`. Raises BadInput bundle_too_large, unreadable."""
    file, candidate = workload.path.absolute(), candidate.absolute()
    version = workload.source.path.absolute() if workload.source is not None else file
    own = _search_folders(candidate)
    trees = {file.parent: "code" if own[-1] == file.parent else "workload"}
    trees.setdefault(own[-1], "candidate")
    trees.setdefault(version.parent, "version")
    for place, folder in enumerate(workload.import_from):
        trees.setdefault(folder.absolute(), f"import{place}")
    collected = _Collected(trees)
    beside = (version.parent, *(folder.absolute() for folder in workload.import_from))
    collected.take(file, (file.parent, *beside))
    collected.take(version, (file.parent, *beside))
    collected.take(candidate, (*own, file.parent, *beside))
    names = [collected.name(folder.absolute() / "x").removesuffix("/x") for folder in workload.import_from]
    return Sources(collected.name(file), collected.name(candidate), collected.name(version) if workload.source is not None else None,
                   tuple(name for name in names if any(member.startswith(f"{name}/") for member in collected.files)),
                   dict(sorted(collected.files.items())), tuple(dict.fromkeys([*own, *trees])))


def _search_folders(candidate: Path) -> tuple[Path, ...]:
    folder = candidate.parent
    return (folder, folder.parent) if folder.name == CANDIDATES else (folder,)


class _Collected:
    """Member name -> bytes; follows what each file names."""

    def __init__(self, trees: dict[Path, str]) -> None:
        self.trees = trees
        self.files: dict[str, bytes] = {}
        self._total = 0

    def name(self, path: Path) -> str:
        """The member that a file becomes: its path below the nearest of the trees."""
        root = max((root for root in self.trees if path.is_relative_to(root)), key=lambda found: len(found.parts))
        return f"{self.trees[root]}/{path.relative_to(root).as_posix()}"

    def take(self, path: Path, folders: tuple[Path, ...]) -> None:
        """The file, and (once) those that it names in these folders."""
        waiting = [path]
        while waiting:
            file = waiting.pop()
            if self.name(file) in self.files:
                continue
            data = _read(file)
            self.files[self.name(file)] = data
            self._total += len(data)
            if len(self.files) > MAX_FILES or self._total > MAX_TOTAL_BYTES:
                raise BadInput("bundle_too_large", f"more than {MAX_FILES} files or {MAX_TOTAL_BYTES >> 20} MiB of source belong to it",
                               where=str(path), fix="keep the workload, the candidate and what they import in a folder of their own")
            if file.suffix == ".py" or file == path:
                waiting += [found for found in _named(data, file, folders) if self.name(found) not in self.files]


def _named(data: bytes, file: Path, folders: tuple[Path, ...]) -> Iterator[Path]:
    """Files in the folders that this source imports or names."""
    try:
        tree = ast.parse(data)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # newer Python than ours, or none: it goes alone
        return
    yield from named_files([tree], file, folders)


def _read(path: Path) -> bytes:
    try:
        with open_regular(path, follow=True) as file:
            return file.read(MAX_TOTAL_BYTES + 1)
    except OSError as error:
        raise BadInput("unreadable", f"can't be read: {error.strerror or error}", where=str(path), fix="make it readable") from error

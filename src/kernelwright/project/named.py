"""The files that a Python source leads to: modules that it imports and files that its strings name, in the folders of the user's own."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

SOURCES = (".cu", ".cuh", ".cpp", ".cc", ".cxx", ".c", ".h", ".hpp", ".ptx", ".py")
"""Files that a source may load by name: a string in it that is the relative path of such a file takes the file along."""
MAX_NAME_CHARACTERS = 200
MAX_FOLDERS = 50
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"\n]{1,200})"', re.MULTILINE)


def named_files(statements: Iterable[ast.AST], file: Path, folders: Sequence[Path], within: Path | None = None) -> Iterator[Path]:
    """Files that the statements of `file` import or name, below the folders (and, by "..", below `within`). A package counts whole."""
    nodes = [node for statement in statements for node in ast.walk(statement)]
    texts = [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    modules = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    modules += [text for text in texts if text.isidentifier() and len(text) < MAX_NAME_CHARACTERS]  # importlib.import_module("helper")
    froms = [node for node in nodes if isinstance(node, ast.ImportFrom)]
    yield from _modules([*modules, *(name for node in froms if not node.level for name in _imported(node))], folders)
    allowed = [*folders, file.parent, *([within] if within is not None else [])]
    for node in froms:
        if node.level:
            found = _modules(_imported(node), [_above(file.parent, node.level - 1)])
            yield from (one for one in found if any(one.is_relative_to(folder) for folder in allowed))
    names = [text for text in texts if len(text) < MAX_NAME_CHARACTERS and text.endswith(SOURCES)]
    if names:
        above = [folder for folder in file.parent.parents if within is not None and folder.is_relative_to(within)]
        places = _places(texts, (file.parent, *folders, *above))
        yield from (found for name in names for place in places for found in inside(place / name, place, within))


def included_files(text: str, file: Path, folders: Sequence[Path], within: Path | None = None) -> Iterator[Path]:
    """Files that C++ or CUDA source includes by #include "..."."""
    for name in _INCLUDE.findall(text):
        yield from (found for place in (file.parent, *folders) for found in inside(place / name, place, within))


def inside(path: Path, folder: Path, within: Path | None = None) -> list[Path]:
    """[path] where it is a regular file below the folder, links followed (with `within`: below that, where it leaves the folder by ".."):
    a source cannot name a file of the user's from elsewhere."""
    if ".." in path.parts:
        if within is None:
            return []
        path, folder = Path(os.path.normpath(path)), within
    try:
        fine = path.is_file() and path.resolve().is_relative_to(folder.resolve())
    except (OSError, ValueError):
        return []
    return [path] if fine and path.is_relative_to(folder) else []


def _imported(node: ast.ImportFrom) -> list[str]:
    """The modules that `from A import b` may load: A, and A.b."""
    if not node.module:
        return [alias.name for alias in node.names]
    return [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]


def _modules(names: Iterable[str], folders: Sequence[Path]) -> Iterator[Path]:
    """Files of modules, all sources of their packages; of a folder without __init__.py the modules alone."""
    parts: dict[str, dict[str, None]] = {}
    for name in names:
        first, _, rest = name.partition(".")
        parts.setdefault(first, {}).update({rest: None} if rest else {})
    for first, rests in parts.items():
        for folder in folders:
            if (folder / first / "__init__.py").is_file():
                files = sorted(path for path in (folder / first).rglob("*") if path.suffix in SOURCES)
                yield from (found for path in files for found in inside(path, folder))
                break
            if (folder / f"{first}.py").is_file():
                yield from inside(folder / f"{first}.py", folder)
                break
        else:
            if rests:
                yield from _modules(rests, [folder / first for folder in folders if (folder / first).is_dir()])


def _places(texts: Iterable[str], folders: Iterable[Path]) -> list[Path]:
    """The folders, and those that the texts name in them: HERE / "csrc" / "scan.cu"."""
    found = dict.fromkeys(folders)
    parts = [text for text in dict.fromkeys(texts) if 0 < len(text) < MAX_NAME_CHARACTERS and "\0" not in text and ".." not in text
             and not text.startswith("/") and text.strip("./")]
    for _ in range(2):
        for folder in list(found):
            for part in parts:
                if len(found) < MAX_FOLDERS and os.path.isdir(folder / part):
                    found[folder / part] = None
    return list(found)


def _above(folder: Path, levels: int) -> Path:
    return folder.parents[levels - 1] if 0 < levels <= len(folder.parents) else folder

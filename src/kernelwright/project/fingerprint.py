"""What the text of one version is: a hash of the definitions that it reaches, so that an edit of v5 changes v5 alone.

Comments and layout do not count. Names are followed within the file, from the version and from what makes its inputs; of the user's own
modules that these import, and files that they name, the whole counts, and what those lead to in turn.
"""

from __future__ import annotations

import ast
import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from ..model.workload import WorkloadRef
from .named import included_files, named_files

MAX_SOURCE_BYTES = 4 << 20
MAX_TOTAL_BYTES = 64 << 20
MAX_FILES = 500
HARNESS = ("PARAMS", "get_inputs", "get_init_inputs", "get_model_and_input")
"""What makes a version's inputs."""
CANDIDATES = "candidates"
"""A version in a folder of this name finds its parent folder's modules too (probe/importing.py)."""


def fingerprint(workload: WorkloadRef) -> str | None:
    """SHA-256 of a version's definitions, of what it is called with, and of the user's files that these lead to. workload.version: an
    entry of VERSIONS (None: the last), or with `source` a name alone. None for what can't be read, is no Python, or leads to more than
    MAX_FILES files or MAX_TOTAL_BYTES."""
    own = workload.source.path if workload.source is not None else workload.path
    reached = _definitions(own, workload)
    if reached is None:
        return None
    start = [(own, reached)]
    if own != workload.path:  # a function: its inputs are made elsewhere
        harness = parsed(workload.path)
        if harness is None:
            return None
        start.append((workload.path, _reached(harness, [ast.Name(name) for name in HARNESS])))
    digest = hashlib.sha256()
    for _, statements in start:
        for statement in statements:
            digest.update(ast.dump(statement).encode("utf-8", "surrogatepass"))
    try:
        closure = _closure(start, workload)
    except (OSError, _TooMuch):
        return None
    for name, data in sorted(closure.items()):
        digest.update(f"{name}\0{len(data)}\0".encode("utf-8", "surrogatepass"))
        digest.update(data)
    return digest.hexdigest()


def _definitions(own: Path, workload: WorkloadRef) -> list[ast.stmt] | None:
    """The version's statements in its file, in order; of a workload also what makes its inputs."""
    tree = parsed(own)
    if tree is None:
        return None
    if workload.source is not None:
        function = workload.source.function
        return list(tree.body) if function is None else _reached(tree, [ast.Name(name) for name in (function.split(".")[0], *HARNESS)])
    entries = version_entries(tree)
    chosen = entries.get(workload.version) if workload.version is not None else next(reversed(entries.values()), None)
    if chosen is None:
        return list(tree.body)
    return [ast.Expr(chosen), *_reached(tree, [chosen, *(ast.Name(name) for name in HARNESS)])]


def versions_of_file(file: Path) -> list[str]:
    """The names in a file's VERSIONS as it is written; empty where it is no literal dict."""
    tree = parsed(file)
    return list(version_entries(tree)) if tree is not None else []


def mentions_versions(file: Path) -> bool:
    """Whether a file has a VERSIONS, in whatever way it is made."""
    tree = parsed(file)
    return tree is not None and any((isinstance(node, ast.Name) and node.id == "VERSIONS") or (isinstance(node, ast.alias)
                                    and "VERSIONS" in (node.name, node.asname)) for node in ast.walk(tree))


def version_entries(tree: ast.Module) -> dict[str, ast.expr]:
    """name -> expression of a literal VERSIONS, with those that `VERSIONS["v2"] = ...` adds; empty where there is none."""
    found: dict[str, ast.expr] = {}
    for statement in tree.body:
        if not isinstance(statement, (ast.Assign, ast.AnnAssign)):
            continue
        value = statement.value
        for target in statement.targets if isinstance(statement, ast.Assign) else [statement.target]:
            if isinstance(target, ast.Name) and target.id == "VERSIONS" and isinstance(value, ast.Dict):
                found |= {key.value: entry for key, entry in zip(value.keys, value.values, strict=True)
                          if isinstance(key, ast.Constant) and isinstance(key.value, str)}
            elif isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name) and target.value.id == "VERSIONS" \
                    and isinstance(target.slice, ast.Constant) and isinstance(target.slice.value, str) and value is not None:
                found[target.slice.value] = value
    return found


def parsed(file: Path) -> ast.Module | None:
    """A Python file's tree; None for what can't be read or is no Python."""
    try:
        with file.open("rb") as opened:
            return _tree(opened.read(MAX_SOURCE_BYTES))
    except OSError:
        return None


def _tree(data: bytes) -> ast.Module | None:
    try:
        return ast.parse(data)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _reached(tree: ast.Module, roots: Iterable[ast.AST]) -> list[ast.stmt]:
    """Statements at module level that bind what the roots name, and what those name in turn, in the file's order."""
    binding: dict[str, list[ast.stmt]] = {}
    for statement in tree.body:
        for name in _bound(statement):
            binding.setdefault(name, []).append(statement)
    pending = [name for root in roots for name in _used(root)]
    seen: set[str] = {"VERSIONS"}
    kept: set[int] = set()
    while pending:
        name = pending.pop()
        if name in seen:
            continue
        seen.add(name)
        for statement in binding.get(name, ()):
            kept.add(id(statement))
            pending += _used(statement)
    return [statement for statement in tree.body if id(statement) in kept]


def _used(node: ast.AST) -> list[str]:
    return [one.id for one in ast.walk(node) if isinstance(one, ast.Name)]


def _bound(statement: ast.stmt) -> set[str]:
    """Names that a statement binds at module level, those inside its blocks too."""
    found: set[str] = set()
    for node in ast.walk(statement):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.alias):
            found.add((node.asname or node.name).split(".")[0])
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return {statement.name}
    return found


class _TooMuch(Exception):
    """More files than are looked at."""


def _closure(start: Sequence[tuple[Path, Sequence[ast.AST]]], workload: WorkloadRef) -> dict[str, bytes]:
    """Relative path -> content of the files that the statements lead to, through each other; Python without comments and layout."""
    within = workload.project.parent if workload.project is not None else None
    beside = dict.fromkeys(file.parent for file, _ in start)
    beside |= dict.fromkeys(folder.parent for folder in list(beside) if folder.name == CANDIDATES)
    folders = tuple(dict.fromkeys((*beside, *workload.import_from)))
    waiting = [found for file, statements in start for found in named_files(statements, file, folders, within)]
    waiting += [found for file, statements in start for found in _included(statements, file, folders, within)]
    seen, found, total = {start[0][0]}, dict[str, bytes](), 0
    while waiting:
        file = waiting.pop()
        if file in seen:
            continue
        seen.add(file)
        with file.open("rb") as opened:
            data = opened.read(MAX_SOURCE_BYTES + 1)
        total += len(data)
        if len(data) > MAX_SOURCE_BYTES or len(seen) > MAX_FILES or total > MAX_TOTAL_BYTES:
            raise _TooMuch
        tree = _tree(data) if file.suffix == ".py" else None
        if tree is not None:
            waiting += [*named_files([tree], file, folders, within), *_included([tree], file, folders, within)]
            data = ast.dump(tree).encode("utf-8", "surrogatepass")
        else:
            waiting += included_files(data.decode("utf-8", "replace"), file, folders, within)
        found[os.path.relpath(file, start[0][0].parent)] = data
    return found


def _included(statements: Iterable[ast.AST], file: Path, folders: Sequence[Path], within: Path | None) -> Iterator[Path]:
    """What C++ source in the statements' strings includes."""
    for node in (node for statement in statements for node in ast.walk(statement)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "#" in node.value:
            yield from included_files(node.value, file, folders, within)

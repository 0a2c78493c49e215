"""What the text of one version is: a hash of the definitions that it reaches, so that an edit of v5 changes v5 alone.

Comments and layout do not count. Names are followed within the file; of the project's own modules that it imports, the whole file counts.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from ..model.workload import VersionSource

MAX_SOURCE_BYTES = 4 << 20


def fingerprint(file: Path, version: str | None, source: VersionSource | None = None) -> str | None:
    """SHA-256 of a version's definitions. file: the workload; version: an entry of its VERSIONS (None: the last), or with `source` a
    name alone. None for what can't be read or is no Python."""
    own = source.path if source is not None else file
    tree = parsed(own)
    if tree is None:
        return None
    if source is not None:
        roots: Iterable[ast.AST] | None = [ast.Name(source.function.split(".")[0])] if source.function is not None else None
    else:
        entries = version_entries(tree)
        chosen = entries.get(version) if version is not None else next(reversed(entries.values()), None)
        roots = [chosen] if chosen is not None else None
    reached = list(tree.body) if roots is None else [*(root for root in roots if not isinstance(root, ast.Name)), *_reached(tree, roots)]
    digest = hashlib.sha256()
    for statement in reached:
        digest.update(ast.dump(statement).encode("utf-8", "surrogatepass"))
    for module in _own_modules(reached, own.parent):
        digest.update(module.read_bytes())
    return digest.hexdigest()


def versions_of_file(file: Path) -> list[str]:
    """The names in a file's VERSIONS as it is written; empty where it is no literal dict."""
    tree = parsed(file)
    return list(version_entries(tree)) if tree is not None else []


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
            return ast.parse(opened.read(MAX_SOURCE_BYTES))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
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


def _own_modules(statements: Iterable[ast.AST], folder: Path) -> Iterator[Path]:
    """Files beside the version that the statements import."""
    names: dict[str, None] = {}
    for node in (node for statement in statements for node in ast.walk(statement)):
        if isinstance(node, ast.Import):
            names |= dict.fromkeys(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= dict.fromkeys([node.module])
    for name in sorted(names):
        file = folder.joinpath(*name.split(".")).with_suffix(".py")
        if file.is_file() and file.stat().st_size <= MAX_SOURCE_BYTES:
            yield file

"""Which definitions of the copied rewrites a generated file needs. Pure."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from functools import cache
from typing import NamedTuple


class Statement(NamedTuple):
    """What a statement of the top level says of names."""

    defines: frozenset[str]
    mentions: frozenset[str]
    documents: bool
    """It is a text alone."""


@cache
def read(text: str) -> Statement:
    """The rewrites are few, and every candidate is made of them: each is read once."""
    tree = ast.parse(text)
    return Statement(frozenset(name for node in tree.body for name in defined_names(node)),
                     frozenset(node.id for node in ast.walk(tree) if isinstance(node, ast.Name)),
                     len(tree.body) == 1 and isinstance(tree.body[0], ast.Expr) and isinstance(tree.body[0].value, ast.Constant))


def needed(definitions: Sequence[str], roots: Iterable[str]) -> list[str]:
    """Those statements of a file's top level, in order, that the root names lead to: what defines a name that a needed one mentions.

    A statement that defines nothing stays (it registers an operator, say); a text alone documents the statement before it.
    """
    found = [read(text) for text in definitions]
    kept = {place for place, one in enumerate(found) if not one.defines and not one.documents}
    wanted = set(roots).union(*(found[place].mentions for place in kept))
    while more := {place for place, one in enumerate(found) if place not in kept and one.defines & wanted}:
        kept |= more
        wanted = wanted.union(*(found[place].mentions for place in more))
    return [text for place, text in enumerate(definitions) if (place - 1 if found[place].documents else place) in kept]


def mentioned(texts: Iterable[str]) -> set[str]:
    """Every name that the statements mention."""
    return {name for text in texts for name in read(text).mentions}


def defined_names(node: ast.stmt) -> list[str]:
    """What a statement of the top level defines, also under an `if` or a `try` (kernels, where Triton can be imported)."""
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return [node.name]
    if isinstance(node, (ast.If, ast.Try)):
        inner = [*node.body, *node.orelse, *(part for handler in getattr(node, "handlers", ()) for part in handler.body)]
        return [name for part in inner for name in defined_names(part)]
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return [alias.asname or alias.name.partition(".")[0] for alias in node.names]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)]

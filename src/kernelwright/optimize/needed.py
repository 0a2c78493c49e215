"""Which definitions of the copied rewrites a generated file needs. Pure."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence


def needed(definitions: Sequence[str], roots: Iterable[str]) -> list[str]:
    """Those statements of a file's top level, in order, that the root names lead to: what defines a name that a needed one mentions.

    A statement that defines nothing stays (it registers an operator, say); a text alone documents the statement before it.
    """
    parsed = [ast.parse(text).body for text in definitions]
    defines = [{name for node in body for name in defined_names(node)} for body in parsed]
    mentions = [mentioned([text]) for text in definitions]
    documents = [len(body) == 1 and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant) for body in parsed]
    kept = {place for place, names in enumerate(defines) if not names and not documents[place]}
    wanted = set(roots).union(*(mentions[place] for place in kept))
    while more := {place for place, names in enumerate(defines) if place not in kept and names & wanted}:
        kept |= more
        wanted = wanted.union(*(mentions[place] for place in more))
    return [text for place, text in enumerate(definitions) if (place - 1 if documents[place] else place) in kept]


def mentioned(texts: Iterable[str]) -> set[str]:
    """Every name that the statements mention."""
    return {name.id for text in texts for name in ast.walk(ast.parse(text)) if isinstance(name, ast.Name)}


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

"""Which definitions of the copied rewrites a generated file needs. Pure."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import NamedTuple

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_RUN_NOTHING = (ast.Name, ast.Attribute, ast.Constant, ast.Tuple, ast.List, ast.Set, ast.Dict, ast.Starred, ast.expr_context)


class Statement(NamedTuple):
    """What a statement of the top level says of names."""

    defines: frozenset[str]
    mentions: frozenset[str]
    at_once: frozenset[str]
    """Mentioned where it is evaluated as the file is loaded: decorators, base classes, defaults, everything outside of functions."""
    run_at_once: frozenset[str]
    """Those of them that may be called there: what is more than a name, or a nest of names, runs something."""
    namespaces: frozenset[str]
    """Of torch's operators ("mine" of "mine::norm" and torch.ops.mine), evaluated likewise."""
    documents: bool
    """It is a text alone."""
    is_definition: bool
    """It is a function or a class."""
    is_block: bool
    """It is an `if`, `try`, `with` or loop."""


@cache
def read(text: str) -> Statement:
    """The rewrites are few, and every candidate is made of them: each is read once."""
    tree = ast.parse(text)
    evaluated = [list(ast.walk(part)) for statement in tree.body for part in _at_once(statement)]
    one = tree.body[0] if len(tree.body) == 1 else None
    return Statement(
        defines=frozenset(name for node in tree.body for name in defined_names(node)) - {"_"}, mentions=_names(ast.walk(tree)),
        at_once=_names(node for nodes in evaluated for node in nodes),
        run_at_once=_names(node for nodes in evaluated if not all(isinstance(one, _RUN_NOTHING) for one in nodes) for node in nodes),
        namespaces=frozenset(name for nodes in evaluated for node in nodes for name in _namespace(node)),
        documents=isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant), is_definition=isinstance(one, _DEFINITIONS),
        is_block=one is not None and not isinstance(one, _DEFINITIONS) and bool(_inner(one)))


def needed(definitions: Sequence[str], roots: Iterable[str]) -> list[int]:
    """Places of those statements of a file's top level that the root names lead to: what defines a name that a needed one mentions.

    A statement that defines nothing stays (it registers an operator, say); a text alone documents the statement before it.
    """
    found = [read(text) for text in definitions]
    kept = {place for place, one in enumerate(found) if not one.defines and not one.documents}
    wanted = set(roots).union(*(found[place].mentions for place in kept))
    while more := {place for place, one in enumerate(found) if place not in kept and one.defines & wanted}:
        kept |= more
        wanted = wanted.union(*(found[place].mentions for place in more))
    return [place for place, one in enumerate(found) if (place - 1 if one.documents else place) in kept]


def mentioned(texts: Iterable[str]) -> set[str]:
    """Every name that the statements mention."""
    return {name for text in texts for name in read(text).mentions}


def defined_names(node: ast.stmt) -> list[str]:
    """What a statement of the top level defines, also under an `if` or a `try` (kernels, where Triton can be imported)."""
    if isinstance(node, _DEFINITIONS):
        return [node.name]
    if inner := _inner(node):
        return [name for part in inner for name in defined_names(part)]
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return [alias.asname or alias.name.partition(".")[0] for alias in node.names]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, (ast.AnnAssign, ast.AugAssign)) else []
    return [name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)]


def _inner(node: ast.stmt) -> list[ast.stmt]:
    """The statements in the blocks of an `if`, `try`, `with` or loop."""
    blocks = [part for name in ("body", "orelse", "finalbody") for part in getattr(node, name, ())]
    return blocks + [part for handler in getattr(node, "handlers", ()) for part in handler.body]


def _at_once(node: ast.stmt) -> Iterator[ast.AST]:
    """What of a statement is evaluated where it stands, under `from __future__ import annotations`; a decorator as the call that it is."""
    yield from (ast.Call(one, [], []) for one in getattr(node, "decorator_list", ()))
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        yield from (*node.args.defaults, *(one for one in node.args.kw_defaults if one is not None))
        if node.decorator_list:  # it may look at the annotations, as custom_op does
            yield from (one.annotation for one in ast.walk(node.args) if isinstance(one, ast.arg) and one.annotation is not None)
            yield from [node.returns] if node.returns is not None else []
    elif isinstance(node, ast.ClassDef):
        yield from (*node.bases, *(one.value for one in node.keywords))
        yield from (part for statement in node.body for part in _at_once(statement))
    elif isinstance(node, ast.Assign):
        yield from (node.value, *(one for one in node.targets if not isinstance(one, ast.Name)))
    elif isinstance(node, ast.AnnAssign):
        yield from [node.value] if node.value is not None else []
    elif inner := _inner(node):
        yield from (one for one in ast.iter_child_nodes(node) if not isinstance(one, (ast.stmt, ast.ExceptHandler)))
        yield from (one.type for one in getattr(node, "handlers", ()) if one.type is not None)
        yield from (part for statement in inner for part in _at_once(statement))
    elif not isinstance(node, (ast.Import, ast.ImportFrom)):
        yield node


def _names(nodes: Iterable[ast.AST]) -> frozenset[str]:
    return frozenset(node.id for node in nodes if isinstance(node, ast.Name))


def _namespace(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return re.findall(r"^(\w+)::", node.value)
    is_operator = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute) and ast.unparse(node.value) == "torch.ops"
    return [node.attr] if is_operator and isinstance(node, ast.Attribute) else []

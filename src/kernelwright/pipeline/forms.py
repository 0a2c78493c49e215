"""Whether a Python file is a workload or a script, told from its text: to import a script would run it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ..model.workload import ParamValue

MAX_SOURCE_BYTES = 4 << 20
MOST_FILES = 20
"""Files followed through `from x import *`."""
_TOP_LEVEL = re.compile(r"^(?:def|class|async def)\s+(\w+)|^(\w+)\s*(?::[^=\n]*)?=", re.MULTILINE)
_SECRET = re.compile(r"token|secret|passw|credential|api[-_]?key|access[-_]?key", re.IGNORECASE)
HIDDEN = "***"


def is_script(file: Path) -> bool:
    """True when the file binds none of the entry points at module level: get_model_and_input; Model or VERSIONS with get_inputs.

    Names bound under `if`, `try`, `with` and loops count, and so do imported ones. Of a file that is no valid Python, the
    lines that look like definitions decide (its fault is reported when it is run or loaded).
    """
    names = bound_names(file)
    return "get_model_and_input" not in names and not ("get_inputs" in names and names & {"Model", "VERSIONS"})


def lacks(file: Path) -> str:
    """What a file that is a script lacks to be a workload, in words."""
    has = bound_names(file) & {"Model", "VERSIONS", "get_inputs"}
    if "get_inputs" in has:
        return "get_inputs() and neither Model nor VERSIONS"
    return f"{' and '.join(sorted(has))} and no get_inputs()" if has else "no entry point"


def syntax_fault(file: Path) -> tuple[int, str] | None:
    """(line, what is wrong there) of a file that this interpreter can't parse; None where it can, can't read it, or it is too long to be
    read whole."""
    try:
        with file.open("rb") as opened:
            source = opened.read(MAX_SOURCE_BYTES + 1)
        if len(source) <= MAX_SOURCE_BYTES:
            ast.parse(source)
    except SyntaxError as error:
        return error.lineno or 1, error.msg
    except (OSError, ValueError, RecursionError, MemoryError):
        return None
    return None


def bound_names(file: Path) -> set[str]:
    """Names bound at module level; those of `from x import *` where x is a file beside this one. Empty for what can't be read."""
    names: set[str] = set()
    pending, seen = [file], set[Path]()
    while pending and len(seen) < MOST_FILES:
        current = pending.pop()
        if current in seen:
            continue
        seen.add(current)
        found, stars = _of_file(current)
        names |= found
        pending += [path for star in stars for path in _files(current.parent, star) if path.is_file()]
    return names


def _of_file(file: Path) -> tuple[set[str], list[str]]:
    try:
        with file.open("rb") as opened:
            source = opened.read(MAX_SOURCE_BYTES)
        tree = ast.parse(source)
    except OSError:
        return set(), []
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        found = _TOP_LEVEL.findall(source.decode("utf-8", "replace"))
        return {first or second for first, second in found}, []
    names: set[str] = set()
    stars: list[str] = []
    for statement in _statements(tree.body):
        names |= _bound(statement)
        if isinstance(statement, ast.ImportFrom) and any(alias.name == "*" for alias in statement.names):
            stars.append(statement.module or "")
    return names, stars


def _statements(body: Iterable[ast.stmt]) -> Iterable[ast.stmt]:
    """All statements that run at module level, however deep inside if, try, with and loops."""
    pending = list(body)
    while pending:
        statement = pending.pop()
        yield statement
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        for child in ast.iter_child_nodes(statement):
            if isinstance(child, ast.stmt):
                pending.append(child)
            elif isinstance(child, (ast.ExceptHandler, ast.match_case)):
                pending += child.body


def _bound(statement: ast.stmt) -> set[str]:
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return {statement.name}
    if isinstance(statement, (ast.Import, ast.ImportFrom)):
        return {(alias.asname or alias.name).split(".")[0] for alias in statement.names}
    if isinstance(statement, ast.Assign):
        targets: Sequence[ast.expr] = statement.targets
    elif isinstance(statement, (ast.AnnAssign, ast.AugAssign)):
        targets = [statement.target]
    else:
        return set()
    return {node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)}


def _files(folder: Path, module: str) -> list[Path]:
    relative = Path(*module.split(".")) if module else Path("__init__")
    return [folder / relative.with_suffix(".py"), folder / relative / "__init__.py"]


def script_argv(params: Mapping[str, str], rest: Sequence[str]) -> tuple[str, ...]:
    """A script's arguments: `--NAME=VALUE` workload parameters first, as they are, then what stood after `--`."""
    return (*(f"--{name}={value}" for name, value in params.items()), *rest)


def script_parameters(argv: Sequence[str]) -> dict[str, ParamValue]:
    """A script's arguments as parameters: `--name value`, `--name=value`, `-n value` by name; an option alone is True.

    Positional arguments are called arg1, arg2, ...; a name that comes again gets its values joined by a space. Values stay text. Values of
    names that speak of secrets are hidden. What an option takes only the script knows: `--verbose data.bin` reads as verbose=data.bin.
    """
    found: dict[str, ParamValue] = {}
    rest, position = list(argv), 0
    while rest:
        word = rest.pop(0)
        name, equals, value = word.partition("=")
        if not re.fullmatch(r"--?[A-Za-z][\w.-]*", name):
            position += 1
            _add(found, f"arg{position}", word)
            continue
        name = name.lstrip("-")
        if equals:
            _add(found, name, value)
        elif rest and not re.fullmatch(r"--?[A-Za-z].*", rest[0], re.DOTALL) and rest[0] != "--":
            _add(found, name, rest.pop(0))
        else:
            _add(found, name, True)
    return found


def _add(found: dict[str, ParamValue], name: str, value: str | bool) -> None:
    if _SECRET.search(name) and value is not True:
        value = HIDDEN
    found[name] = value if name not in found else f"{found[name]} {value}"


def hide_secrets(command: Sequence[str]) -> list[str]:
    """A command line with the values of options that speak of secrets hidden."""
    shown: list[str] = []
    hide_next = False
    for word in command:
        name, equals, _ = word.partition("=")
        secret = name.startswith("-") and _SECRET.search(name) is not None
        shown.append(HIDDEN if hide_next and not word.startswith("-") else f"{name}={HIDDEN}" if secret and equals else word)
        hide_next = secret and not equals
    return shown

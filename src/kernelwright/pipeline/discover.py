"""What a folder has that a project file could name: workloads, versions in files of their own, KernelBench problems with their answers."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..project.fingerprint import versions_of_file
from ..project.names import bad_name, natural
from .forms import bound_names

MAX_FILES = 5000
MAX_DEPTH = 6
MAX_FILE_BYTES = 1 << 20
_PASSED_OVER = {"out", "build", "dist", "venv", "env", "node_modules", "site-packages", "__pycache__", "tests", "test", "docs",
                "candidates"}
_VERSION_FILE = re.compile(r"(?P<kernel>.+?)[_\-.]?(?P<version>v\d+\w*)")
_ANSWER = re.compile(r"(?P<kernel>.+)_(?P<version>new|optimi[sz]ed|solution|answer)", re.IGNORECASE)
_USUAL_FUNCTIONS = ("forward", "run", "kernel", "main")


@dataclass(frozen=True)
class Found:
    """One kernel that the project file will name. Paths are relative to the project's folder."""

    name: str
    file: str | None = None
    versions: list[str] | dict[str, str] | str | None = None
    """As `versions:` takes it; None: one workload without versions."""


@dataclass
class _File:
    path: Path
    bound: set[str] = field(default_factory=set)

    @property
    def is_workload(self) -> bool:
        return "get_model_and_input" in self.bound or ("get_inputs" in self.bound and bool(self.bound & {"Model", "VERSIONS"}))

    @property
    def makes_inputs(self) -> bool:
        return self.is_workload or "get_inputs" in self.bound


def discover(folder: Path) -> list[Found]:
    """Kernels by name. A file with VERSIONS is one; so are NAME_v1.py, NAME_v2.py, ... together (workloads each, or functions called with
    the inputs of NAME.py), NAME.py with NAME_new.py of ModelNew, and any other workload. Scripts are left out."""
    files = [_File(path, bound_names(path)) for path in _python_files(folder)]
    by_path = {file.path: file for file in files}
    found: list[Found] = []
    used: set[Path] = set()
    for (parent, kernel), versions in _grouped(files).items():
        places = [parent / f"{kernel}.py", parent.parent / f"{kernel}.py"]
        harness = next((by_path[place] for place in places if place in by_path and by_path[place].makes_inputs), None)
        made = _of_versions(folder, kernel, versions, harness)
        if made is not None:
            found.append(made)
            used |= {file.path for file in versions} | ({harness.path} if made.file is not None and harness is not None else set())
    for file in files:
        if file.path in used or not file.is_workload:
            continue
        found.append(_of_file(folder, file, by_path))
    return _named_apart(found)


def left_out(folder: Path, files: Collection[Path]) -> list[str]:
    """Python files of the folder that are none of `files` (absolute), relative to it."""
    return [_relative(folder, path) for path in _python_files(folder) if path.resolve() not in files]


def _python_files(folder: Path) -> Iterator[Path]:
    """At most MAX_FILES, in order, without hidden folders, environments and tests; links are not followed."""
    count = 0
    for at, folders, names in os.walk(folder):
        depth = len(Path(at).relative_to(folder).parts)
        folders[:] = sorted(name for name in folders if depth < MAX_DEPTH and not name.startswith(".") and name.lower() not in _PASSED_OVER
                            and not (Path(at) / name / "pyvenv.cfg").exists())
        for name in sorted(names):
            path = Path(at) / name
            if name.endswith(".py") and not name.startswith((".", "test_")) and path.is_file() and path.stat().st_size <= MAX_FILE_BYTES:
                yield path
                count += 1
                if count >= MAX_FILES:
                    return


def _grouped(files: Sequence[_File]) -> dict[tuple[Path, str], list[_File]]:
    """(folder, kernel) -> its NAME_v<number>.py files without VERSIONS of their own, oldest first."""
    groups: dict[tuple[Path, str], list[_File]] = {}
    for file in files:
        match = _VERSION_FILE.fullmatch(file.path.stem)
        if match and not {"VERSIONS", "get_inputs"} <= file.bound:
            groups.setdefault((file.path.parent, match["kernel"].rstrip("_-.")), []).append(file)
    return {key: sorted(group, key=lambda file: natural(file.path.stem)) for key, group in groups.items()}


def _of_versions(folder: Path, kernel: str, files: Sequence[_File], harness: _File | None) -> Found | None:
    """Versions in files of their own. None where they are neither workloads nor functions that NAME.py has inputs for."""
    texts: dict[str, str] = {}
    for file in files:
        name = _VERSION_FILE.fullmatch(file.path.stem)
        assert name is not None
        own = _relative(folder, file.path)
        if file.is_workload:
            texts[name["version"]] = own
        elif harness is not None and (function := _function(file, kernel, name["version"])):
            texts[name["version"]] = f"{own}:{function}"
    if not texts:
        return None
    if all(":" not in text for text in texts.values()):
        harness = None
    functions = {text.partition(":")[2] for text in texts.values()}
    pattern = _pattern(folder, files, texts)
    versions: dict[str, str] | str = texts
    if pattern is not None and len(functions) == 1:
        versions = f"{pattern}:{next(iter(functions))}" if any(functions) else pattern
    return Found(kernel, _relative(folder, harness.path) if harness is not None else None, versions)


def _pattern(folder: Path, files: Sequence[_File], texts: dict[str, str]) -> str | None:
    """A pattern that fits exactly these files, so that the next version is found without an edit; None where there is none."""
    stems = [file.path.stem[: _VERSION_FILE.fullmatch(file.path.stem).start("version") + 1] for file in files]  # type: ignore[union-attr]
    stem = stems[0] if len(set(stems)) == 1 else ""
    if len(files) < 2 or not stem or re.search(r"[*?\[\]]", stem):
        return None
    place = files[0].path.parent
    fits = set(place.glob(f"{stem}*.py"))
    return _relative(folder, place / f"{stem}*.py") if fits == {file.path for file in files} and len(texts) == len(files) else None


def _function(file: _File, kernel: str, version: str) -> str | None:
    """What of a file is the version: ModelNew, a function called after it or the kernel, or its only public function."""
    try:
        tree = ast.parse(file.path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    names = [node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_")]
    functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
                 and not any("jit" in ast.dump(decorator) for decorator in node.decorator_list)]
    usual = ("ModelNew", file.path.stem, version, kernel, *_USUAL_FUNCTIONS)
    return next((name for name in usual if name in names), functions[0] if len(functions) == 1 else None)


def _of_file(folder: Path, file: _File, by_path: dict[Path, _File]) -> Found:
    own, stem = _relative(folder, file.path), file.path.stem
    if {"VERSIONS", "get_inputs"} <= file.bound:
        names = [name for name in versions_of_file(file.path) if bad_name(name) is None]
        return Found(stem, own, names or None)
    answers = {}
    for path, other in by_path.items():
        match = _ANSWER.fullmatch(path.stem)
        if match and match["kernel"] == stem and path.parent == file.path.parent and "ModelNew" in other.bound and "Model" in file.bound:
            answers[match["version"].lower()] = f"{_relative(folder, path)}:ModelNew"
    if answers:
        return Found(stem, own, {"base": f"{own}:Model", **answers})
    return Found(stem, own)


def _named_apart(found: Sequence[Found]) -> list[Found]:
    """Names that can be typed, each once: of two kernels of one name the one deeper down gets its folder's name before it."""
    result: dict[str, Found] = {}
    for one in sorted(found, key=lambda item: (len(_place(item).parts), str(_place(item)))):
        name = one.name if bad_name(one.name) is None else re.sub(r"[^\w.-]+", "_", one.name).strip("._-")[:80] or "kernel"
        if name in result:
            name = f"{_place(one).parent.name or 'kernel'}_{name}"
        base, number = name, 2
        while name in result:
            name, number = f"{base}_{number}", number + 1
        result[name] = Found(name, one.file, one.versions)
    return [result[name] for name in sorted(result)]


def _place(one: Found) -> Path:
    versions = next(iter(one.versions.values())) if isinstance(one.versions, dict) else one.versions
    return Path(one.file or (versions if isinstance(versions, str) else ""))


def _relative(folder: Path, path: Path) -> str:
    return path.relative_to(folder).as_posix()

"""kernelwright.yaml -> Project. What is wrong in it is one line: the file, the line, the mend."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from ..capture.clocks import valid_request
from ..model.workload import Device, ParamValue, VersionSource
from .document import Document
from .model import Baseline, Budget, Kernel, Project, Version
from .names import bad_name, is_path, natural, split_function, version_names

PROJECT_FILE = "kernelwright.yaml"
MAX_VERSIONS = 1000
MAX_MATCHES = 20_000
"""Files and folders that a pattern may fit."""
_WILD = re.compile(r"[*?\[]")

Text = Annotated[str, StringConstraints(min_length=1, max_length=1000)]
Scalar = int | float | bool | str
Params = dict[Text, Scalar]


class _Entry(BaseModel):
    """Strict: `4` is no version's name, and what is not known is refused."""

    model_config = ConfigDict(extra="forbid", strict=True)


class _Budget(_Entry):
    version: Text | None = None
    params: Params = Field(default_factory=dict)
    duration_us: float | None = Field(None, gt=0, allow_inf_nan=False)
    versus: Text | None = None
    slower_pct: float | None = Field(None, ge=0, allow_inf_nan=False)


class _Kernel(_Entry):
    file: Text | None = None
    versions: Text | list[Text] | dict[Text, Text] = Field(default_factory=list)
    default_version: Text | None = None
    params: Params = Field(default_factory=dict)
    sweep: dict[Text, Annotated[list[Scalar], Field(min_length=1, max_length=1000)]] = Field(default_factory=dict)
    stages: list[Text] = Field(default_factory=list, max_length=1000)
    devlog: Text | None = None
    device: Device | None = None
    accepted: Text | None = None
    baseline: Text | None = None
    budgets: list[_Budget] = Field(default_factory=list, max_length=1000)


class _File(_Entry):
    kernels: dict[Text, _Kernel] = Field(min_length=1)
    clocks: Any = None
    device: Device = "auto"
    baseline: Text | None = None
    import_from: list[Text] = Field(default_factory=list, max_length=100)


class _Fault(NamedTuple):
    """What is wrong with a key's value."""

    code: str
    message: str
    fix: str


_FAULTS: dict[str, _Fault] = {
    "kernels": _Fault("no_kernels", "has no `kernels:` mapping", fix="add `kernels: {NAME: {file: ...}}`, or let init write the file"),
    "file": _Fault("no_kernel_file", "`file:` must be the path of a Python file", fix="give it relative to the project file"),
    "versions": _Fault("bad_versions", "`versions:` must be a list of names, a mapping of names to files, or a pattern",
                       fix='e.g. `versions: ["v1", "v2"]`, `versions: {v1: mla_v1.py}` or `versions: "mla_v*.py"`'),
    "default_version": _Fault("bad_default_version", "`default_version:` must be text", fix='write it in quotes: `default_version: "..."`'),
    "accepted": _Fault("bad_accepted", "`accepted:` must be text", fix='write it in quotes: `accepted: "..."`'),
    "params": _Fault("bad_params", "`params:` must map names to single values", fix="e.g. `params: {b: 32, dtype: bfloat16}`"),
    "sweep": _Fault("bad_sweep", "`sweep:` must map parameters to lists of values", fix="e.g. `sweep: {t: [1024, 4096, 16384]}`"),
    "stages": _Fault("bad_stages", "`stages:` must be a list of names", fix="e.g. `stages: [qk, softmax, pv]`"),
    "devlog": _Fault("bad_devlog", "`devlog:` must be text", fix='write it in quotes: `devlog: "..."`'),
    "device": _Fault("bad_device", "`device:` must be auto, cuda or cpu", fix="e.g. `device: cuda`"),
    "baseline": _Fault("bad_baseline", "`baseline:` must be a version, accepted, previous or none", fix="e.g. `baseline: previous`"),
    "budgets": _Fault("bad_budgets", "`budgets:` must be a list of limits", fix="e.g. `budgets: [{version: v4, duration_us: 120}]`"),
    "duration_us": _Fault("bad_budgets", "`duration_us:` must be a number above 0", fix="e.g. `duration_us: 120`"),
    "slower_pct": _Fault("bad_budgets", "`slower_pct:` must be a number of percent, 0 or more", fix="e.g. `slower_pct: 3`"),
    "import_from": _Fault("bad_import_from", "`import_from:` must be a list of folders", fix="e.g. `import_from: [build]`"),
}


def read_project(file: Path) -> Project:
    """The project of one file. Raises BadInput naming file, line and mend."""
    file = file.absolute()
    document = Document(file)
    value = document.value
    if not isinstance(value, dict) or not isinstance(value.get("kernels"), dict):
        raise _told(document, _FAULTS["kernels"], ["kernels"])
    try:
        parsed = _File.model_validate(value)
    except ValidationError as error:
        raise _fault(document, error) from error
    except RecursionError as error:  # an alias that holds itself
        raise document.fault("broken_yaml", [], "holds an alias of itself", "write it without anchors") from error
    clocks = None if parsed.clocks is None else str(parsed.clocks)
    if clocks is not None and (isinstance(parsed.clocks, bool) or not valid_request(clocks)):
        raise document.fault("bad_clocks", ["clocks"], f"`clocks:` is {clocks[:40]!r}", "none, lock or a number of MHz")
    kernels = {name: _Reader(document, name, entry, parsed).kernel() for name, entry in parsed.kernels.items()}
    return Project(file=file, kernels=kernels, clocks=clocks, import_from=tuple(_absolute(file, text) for text in parsed.import_from))


def _told(document: Document, fault: _Fault, path: Sequence[str | int]) -> Exception:
    return document.fault(fault.code, path, fault.message, fault.fix)


def _fault(document: Document, error: ValidationError) -> Exception:
    """The first fault, in the words of the key that it is about."""
    first = min(error.errors(include_url=False, include_context=False, include_input=False), key=lambda one: document.line(one["loc"]))
    path = [part for part in first["loc"] if part != "[key]"]
    if first["type"] == "extra_forbidden":
        kind: type[_Entry] = _Budget if "budgets" in path[2:] else _Kernel if path[0] == "kernels" else _File
        known = ", ".join(sorted(kind.model_fields))
        return document.fault("unknown_key", path, f"unknown key {str(path[-1])[:100]!r}", f"known: {known}")
    if path[0] == "kernels" and len(path) <= 2:
        if first["loc"][-1] == "[key]":
            return document.fault("bad_name", path, "a kernel's name must be text", "write it in quotes")
        return document.fault("no_kernel_file", path, "needs a `file:` or `versions:`", "add `file: PATH`, relative to the project file")
    # Of a union the path ends in the names of its branches; within budgets the budget's own key comes last.
    key = next((str(part) for part in reversed(path[2:] if path[0] == "kernels" else path) if part in _FAULTS), "kernels")
    place = path[: len(path) - 1 - path[::-1].index(key) + 1] if key in path else path
    return _told(document, _FAULTS[key], place)


class _Reader:
    """One kernel's entry, turned into its record."""

    def __init__(self, document: Document, name: str, entry: _Kernel, parsed: _File) -> None:
        self.document, self.name, self.entry, self.parsed = document, name, entry, parsed
        self.folder = document.file.parent

    def fault(self, code: str, path: Sequence[str | int], message: str, fix: str) -> Exception:
        return self.document.fault(code, ["kernels", self.name, *path], message, fix)

    def kernel(self) -> Kernel:
        """Raises BadInput."""
        entry = self.entry
        if fault := bad_name(self.name):
            raise self.fault("bad_name", [], f"a kernel's name {fault}", "choose another name")
        if entry.file is None and not entry.versions:
            raise self.fault("no_kernel_file", [], "needs a `file:` or `versions:`", "add `file: PATH`, relative to the project file")
        versions = self._versions()
        names = [version.name for version in versions]
        for key in ("default_version", "accepted"):
            self._known(getattr(entry, key), names, [key])
        kernel = Kernel(
            name=self.name, file=_absolute(self.document.file, entry.file) if entry.file else None, versions=versions,
            default_version=entry.default_version, params=dict[str, ParamValue](entry.params),
            sweep={key: tuple(values) for key, values in entry.sweep.items()}, stages=tuple(entry.stages),
            devlog=_absolute(self.document.file, entry.devlog) if entry.devlog else None, device=entry.device or self.parsed.device,
            accepted=entry.accepted, baseline=self._baseline(names))
        budgets = tuple(self._budget(place, budget, kernel) for place, budget in enumerate(entry.budgets))
        return kernel.model_copy(update={"budgets": budgets})

    def _known(self, version: str | None, names: Sequence[str], path: Sequence[str | int]) -> None:
        if version is not None and names and version not in names:
            raise self.fault("no_such_version", path, f"{self.name} has no version {version[:100]!r}", f"one of: {', '.join(names)}")

    def _baseline(self, names: Sequence[str]) -> Baseline:
        own = self.entry.baseline
        asked = own if own is not None else self.parsed.baseline
        if asked is None:
            return Baseline()
        words: dict[str, Literal["accepted", "previous", "none"]] = {"accepted": "accepted", "previous": "previous", "none": "none"}
        if asked in words:
            return Baseline(kind=words[asked])
        if own is None and asked not in names:
            return Baseline()  # of the whole project, and another kernel's version
        self._known(asked, names, ["baseline"])
        return Baseline(kind="version", version=asked)

    def _budget(self, place: int, budget: _Budget, kernel: Kernel) -> Budget:
        path: list[str | int] = ["budgets", place]
        if budget.duration_us is None and budget.versus is None:
            raise self.fault("bad_budgets", path, "a budget needs a limit", "add `duration_us: 120`, or `versus: v3` with `slower_pct: 3`")
        if budget.slower_pct is not None and budget.versus is None:
            raise self.fault("bad_budgets", [*path, "slower_pct"], "slower than what?", "add `versus: VERSION`")
        for key in ("version", "versus"):
            self._known(getattr(budget, key), kernel.version_names, [*path, key])
        if budget.versus is not None and budget.versus == (budget.version if budget.version is not None else kernel.usual_version):
            raise self.fault("bad_budgets", [*path, "versus"], f"{budget.versus} is held against itself", "name another version")
        return Budget(version=budget.version, params=dict[str, ParamValue](budget.params), duration_us=budget.duration_us,
                      versus=budget.versus, slower_pct=budget.slower_pct or 0.0, line=self.document.line(["kernels", self.name, *path]))

    def _versions(self) -> tuple[Version, ...]:
        given = self.entry.versions
        if isinstance(given, dict):
            found = [Version(name=name, source=self._source(text, name)) for name, text in given.items()]
        elif isinstance(given, str) and not is_path(given):
            raise _told(self.document, _FAULTS["versions"], ["kernels", self.name, "versions"])
        else:
            found = []
            for place, text in enumerate([given] if isinstance(given, str) else given):
                found += self._listed(text, place)
        for version in found:
            if fault := bad_name(version.name):
                raise self.fault("bad_versions", ["versions"], f"a version's name {fault}", "choose another name")
        names = [version.name for version in found]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise self.fault("bad_versions", ["versions"], f"two versions are called {twice!r}", "name them: `versions: {NAME: FILE.py}`")
        if self.entry.file is None and any(version.source is None for version in found):
            raise self.fault("no_kernel_file", [], "its versions are names, and there is no `file:` that has them",
                             "add `file: PATH`, relative to the project file")
        if len(found) > MAX_VERSIONS:
            raise self.fault("bad_versions", ["versions"], f"more than {MAX_VERSIONS} versions", "list fewer")
        return tuple(found)

    def _listed(self, text: str, place: int) -> list[Version]:
        """What one text stands for: a name in the file's VERSIONS, a file, or all files that fit a pattern."""
        if not is_path(text):
            return [Version(name=text)]
        path, function = split_function(text)
        if not _WILD.search(path):
            return [Version(name=version_names([Path(path)], self.name)[0], source=self._source(text, place))]
        files = sorted(self._matches(path, place), key=natural)
        names = version_names(files, self.name)
        found = [Version(name=name, source=VersionSource(path=file, function=function)) for name, file in zip(names, files, strict=True)]
        return sorted(found, key=lambda version: natural(version.name))

    def _matches(self, pattern: str, place: int) -> list[Path]:
        fix = "a pattern is relative to the project file, e.g. `kernels/mla_v*.py`"
        where: list[str | int] = ["versions", place]
        if pattern.startswith("/") or ".." in Path(pattern).parts:
            raise self.fault("bad_versions", where, f"the pattern {pattern[:100]!r} leaves the project's folder", fix)
        try:
            found = list(islice(self.folder.glob(pattern), MAX_MATCHES))
        except (ValueError, NotImplementedError, OSError, RecursionError) as error:
            raise self.fault("bad_versions", where, f"the pattern {pattern[:100]!r} can't be used: {error}", fix) from error
        files = [file for file in found if file.suffix == ".py" and file.is_file() and file != self._file()]
        if not files:
            raise self.fault("bad_versions", where, f"no Python file fits the pattern {pattern[:100]!r}", fix)
        return files

    def _file(self) -> Path | None:
        return _absolute(self.document.file, self.entry.file) if self.entry.file else None

    def _source(self, text: str, place: str | int) -> VersionSource:
        path, function = split_function(text)
        if not is_path(text):
            raise self.fault("bad_versions", ["versions", place], f"{text[:100]!r} is no Python file",
                             "write FILE.py, or FILE.py:FUNCTION, relative to the project file")
        return VersionSource(path=_absolute(self.document.file, path), function=function)


def _absolute(project: Path, text: str) -> Path:
    return Path(re.sub(r"/+$", "", str((project.parent / text).resolve())) or "/")

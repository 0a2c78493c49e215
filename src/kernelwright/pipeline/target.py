"""From what a user types (`workload.py`, `v4`, `mla v4`) to the workload that is meant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from ..capture.clocks import valid_request
from ..model.errors import BadInput
from ..model.nearest import did_you_mean
from ..model.workload import ScriptRef, WorkloadRef
from .forms import is_script, script_argv
from .source import check_source, exists, is_file

PROJECT_FILE = "kernelwright.yaml"
MAX_PROJECT_BYTES = 1_000_000
MAX_PROJECT_KEYS = 10_000
_KERNEL_KEYS = {"file", "versions", "default_version", "params", "devlog"}


class _Loader(yaml.SafeLoader):
    """SafeLoader for small documents: merge keys (`<<`) can't multiply a few lines into millions of entries, and no key stands twice
    in a mapping (the last would win in silence)."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """See yaml.composer.Composer; raises ComposerError for a key given twice."""
        node: yaml.MappingNode = super().compose_mapping_node(anchor)
        seen: set[str] = set()
        for key in (key for key, _value in node.value if isinstance(key, yaml.ScalarNode) and key.value != "<<"):
            if key.value in seen:
                raise yaml.composer.ComposerError(None, None, f"{key.value[:200]!r} is given twice", key.start_mark)
            seen.add(key.value)
        return node

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """See yaml.constructor.SafeConstructor; raises ConstructorError for more than MAX_PROJECT_KEYS keys."""
        super().flatten_mapping(node)
        if len(node.value) > MAX_PROJECT_KEYS:
            raise yaml.constructor.ConstructorError(None, None, f"a mapping has more than {MAX_PROJECT_KEYS} keys", node.start_mark)


def resolve_target(
    target: str, version: str | None, params: dict[str, str], model_name: str | None, *, start: Path | None = None,
    script_args: Sequence[str] | None = None
) -> WorkloadRef:
    """The workload behind TARGET [VERSION]; a script when its file has no entry point, or script_args (what stood after `--`) are given.

    TARGET is a file, or (with a project file in this folder or above) a kernel's name or one of its versions.
    Parameters on the command line win over the project file's. Raises BadInput with the choices when it can't be told.
    """
    start = (start or Path.cwd()).resolve()
    file = start / target
    project = find_project(start)
    if is_file(file) or target.endswith(".py") or "/" in target or not target or (project is None and exists(file)):
        check_source(file, "workload")
        return _as_script(_from_file(file.resolve(), version, params, model_name, start), target, script_args)
    if project is None:
        raise BadInput("no_such_workload", f"no such file, and there is no {PROJECT_FILE} in {start} or above that could name it",
                       where=str(file),
                       fix=did_you_mean(file, f"give the path of a Python file, or run where a {PROJECT_FILE} is", suffix=".py"))
    return _as_script(_from_project(project, target, version, params, model_name), None, script_args)


def _as_script(workload: WorkloadRef, typed: str | None, script_args: Sequence[str] | None) -> WorkloadRef:
    """The same, told to run as a script where it is one. typed: the file as the user wrote it."""
    if script_args is None and (workload.path.suffix not in (".py", "") or not is_script(workload.path)):
        return workload
    script = ScriptRef(argv0=typed or str(workload.path), argv=script_argv(workload.params, script_args or ()))
    return workload.model_copy(update={"script": script})


def refuse_script(workload: WorkloadRef, verb: str) -> None:
    """For verbs that must load their workload. Raises BadInput naming the forms they take."""
    if workload.script is not None:
        raise BadInput("script_not_taken", f"the file has no entry point, so it is a script, and {verb} takes no scripts",
                       where=str(workload.path),
                       fix="define get_model_and_input() -> (model, input); or Model, get_inputs() and get_init_inputs(); or VERSIONS "
                           "and get_inputs(). profile_kernel runs scripts")


def find_project(start: Path) -> Path | None:
    """The nearest kernelwright.yaml in `start` or above."""
    return next((folder / PROJECT_FILE for folder in (start, *start.parents) if (folder / PROJECT_FILE).is_file()), None)


def load_project(file: Path) -> dict[str, dict[str, Any]]:
    """kernel name -> its entry, checked. Raises BadInput naming the place."""
    document = _document(file)
    kernels = document.get("kernels")
    if not isinstance(kernels, Mapping) or not kernels:
        raise BadInput("no_kernels", "has no `kernels:` mapping", where=str(file), fix="add `kernels: {NAME: {file: ...}}`")
    return {str(name): _checked(file, str(name), entry) for name, entry in kernels.items()}


def project_clocks(file: Path) -> str | None:
    """What the project asks of the GPU's clocks (`clocks:`): none, lock or a number of MHz. None: nothing. Raises BadInput."""
    asked = _document(file).get("clocks")
    if asked is None:
        return None
    if isinstance(asked, bool) or not valid_request(str(asked)):
        raise BadInput("bad_clocks", f"`clocks:` is {str(asked)[:40]!r}", where=str(file), fix="none, lock or a number of MHz")
    return str(asked)


def _document(file: Path) -> Mapping[str, Any]:
    """The project file's mapping, {} when it holds something else. Raises BadInput naming the place."""
    try:
        if file.stat().st_size > MAX_PROJECT_BYTES:
            raise BadInput("project_too_large", f"is larger than {MAX_PROJECT_BYTES} bytes", where=str(file),
                           fix="keep kernels alone in it, or move it away")
        document = yaml.load(file.read_text(encoding="utf-8"), Loader=_Loader)
    except OSError as error:
        raise BadInput("unreadable", f"can't be read: {error.strerror or error}", where=str(file), fix="make it readable") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: bytes that are not UTF-8, a date such as 2024-13-45
        mark = getattr(error, "problem_mark", None)
        place = f"{file}:{mark.line + 1}" if mark is not None else str(file)
        problem = "it is nested too deeply" if isinstance(error, RecursionError) else getattr(error, "problem", None) or error
        raise BadInput("broken_yaml", f"is not valid YAML: {problem}", where=place, fix="correct that line") from error
    return document if isinstance(document, Mapping) else {}


def _checked(file: Path, name: str, entry: Any) -> dict[str, Any]:
    where = f"{file}: kernels.{name}"
    if not isinstance(entry, Mapping) or not isinstance(entry.get("file"), str):
        raise BadInput("no_kernel_file", "needs a `file:`", where=where, fix="add `file: PATH`, relative to the project file")
    unknown = sorted(str(key) for key in entry if key not in _KERNEL_KEYS)
    if unknown:
        raise BadInput("unknown_key", f"unknown key {unknown[0]!r}", where=where, fix=f"known: {', '.join(sorted(_KERNEL_KEYS))}")
    if "\0" in entry["file"]:
        raise BadInput("no_kernel_file", "`file:` holds a NUL character", where=where, fix="give the path of a Python file")
    params = entry.get("params", {})
    if not isinstance(params, Mapping) or not all(isinstance(value, (str, int, float, bool)) for value in params.values()):
        raise BadInput("bad_params", "`params:` must map names to single values", where=where,
                       fix="e.g. `params: {b: 32, dtype: bfloat16}`")
    for key in ("default_version", "devlog"):
        if not isinstance(entry.get(key, ""), str):
            raise BadInput(f"bad_{key}", f"`{key}:` must be text", where=where, fix=f'write it in quotes: `{key}: "..."`')
    versions = entry.get("versions", [])
    if not isinstance(versions, list) or not all(isinstance(version, str) for version in versions):
        raise BadInput("bad_versions", "`versions:` must be a list of names", where=where, fix='e.g. `versions: ["v1", "v2"]`')
    return dict(entry)


def _from_file(file: Path, version: str | None, params: dict[str, str], model_name: str | None, start: Path) -> WorkloadRef:
    project = find_project(start) or find_project(file.parent)
    name, devlog = model_name or file.stem, None
    if project is not None:
        for kernel, entry in load_project(project).items():
            if (project.parent / entry["file"]).resolve() == file:
                name = model_name or kernel
                devlog = _devlog(project, entry)
                params = {**_texts(entry), **params}
                version = version or entry.get("default_version")
    clocks = project_clocks(project) if project is not None else None
    return WorkloadRef(path=file, name=name, version=version, params=params, devlog=devlog, clocks=clocks)


def _from_project(
    project: Path, target: str, version: str | None, params: dict[str, str], model_name: str | None
) -> WorkloadRef:
    kernels = load_project(project)
    if target in kernels:
        name = target
    else:
        if version is not None:
            raise BadInput("no_such_kernel", f"no kernel {target!r} in the project", where=str(project),
                           fix=f"one of: {', '.join(sorted(kernels))}")
        name, version = _kernel_of_version(project, kernels, target), target
    entry = kernels[name]
    file = (project.parent / entry["file"]).resolve()
    if not exists(file):
        raise BadInput("no_such_workload", f"kernels.{name}.file does not exist", where=str(file),
                       fix=did_you_mean(file, f"mend {project}", suffix=".py"))
    check_source(file, "workload")
    known = entry.get("versions", [])
    version = version or entry.get("default_version")
    if version is not None and known and version not in known:
        raise BadInput("no_such_version", f"{name} has no version {version!r}", where=str(project), fix=f"one of: {', '.join(known)}")
    return WorkloadRef(path=file, name=model_name or name, version=version, params={**_texts(entry), **params},
                       devlog=_devlog(project, entry), clocks=project_clocks(project))


def _kernel_of_version(project: Path, kernels: Mapping[str, dict[str, Any]], version: str) -> str:
    having = sorted(name for name, entry in kernels.items() if version in entry.get("versions", []))
    if len(having) == 1:
        return having[0]
    if having:
        raise BadInput("ambiguous_version", f"version {version!r} is in more than one kernel", where=str(project),
                       fix="name the kernel too: " + " or ".join(f"{name} {version}" for name in having))
    choices = [f"{name} ({', '.join(entry.get('versions', [])) or 'no versions listed'})" for name, entry in sorted(kernels.items())]
    raise BadInput("no_such_kernel", f"no kernel or version {version!r} in the project", where=str(project),
                   fix=f"one of: {'; '.join(choices)}")


def _texts(entry: Mapping[str, Any]) -> dict[str, str]:
    return {str(key): str(value) for key, value in entry.get("params", {}).items()}


def _devlog(project: Path, entry: Mapping[str, Any]) -> Path | None:
    return (project.parent / entry["devlog"]).resolve() if isinstance(entry.get("devlog"), str) else None

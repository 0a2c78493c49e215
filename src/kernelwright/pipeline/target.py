"""From what a user types (`workload.py`, `v4`, `mla v4`) to the workload that is meant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ..model.errors import BadInput
from ..model.nearest import did_you_mean
from ..model.workload import ScriptRef, WorkloadRef
from ..project import PROJECT_FILE, Meant, Project, find, find_file, kernel_and_version, kernels_of_file, read_project
from .forms import is_script, lacks, script_argv, syntax_fault
from .source import check_source, exists, is_file


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
    project_file = find_file(start)
    if is_file(file) or target.endswith(".py") or "/" in target or not target or (project_file is None and exists(file)):
        check_source(file, "workload")
        return _as_script(_from_file(file.resolve(), version, params, model_name, start), target, script_args)
    if project_file is None:
        raise BadInput("no_such_workload", f"no such file, and there is no {PROJECT_FILE} in {start} or above that could name it",
                       where=str(file),
                       fix=did_you_mean(file, f"give the path of a Python file, or run where a {PROJECT_FILE} is", suffix=".py"))
    project = read_project(project_file)
    return _as_script(workload_of(project, kernel_and_version(project, target, version), params, model_name), None, script_args)


def workload_of(project: Project, meant: Meant, params: Mapping[str, str] | None = None, model_name: str | None = None) -> WorkloadRef:
    """The workload of one kernel's version. params win over the project file's. Raises BadInput where its files are not there."""
    kernel = meant.kernel
    chosen = kernel.version(meant.version) if meant.version is not None else None
    source = chosen.source if chosen is not None else None
    file = kernel.file if kernel.file is not None and (source is None or source.function is not None) else None
    if file is None:  # each version is a workload of its own
        chosen = chosen or kernel.versions[-1]
        source = chosen.source
        file = chosen.file(kernel)
    for path in dict.fromkeys((file, *([source.path] if source is not None else ()))):
        if not exists(path):
            raise BadInput("no_such_workload", f"a file of kernels.{kernel.name} does not exist", where=str(path),
                           fix=did_you_mean(path, f"mend {project.file}", suffix=".py"))
        check_source(path, "workload")
    return WorkloadRef(
        path=file, name=model_name or kernel.name, version=chosen.name if chosen is not None else meant.version, source=source,
        params={**kernel.texts(), **(params or {})}, devlog=kernel.devlog, clocks=project.clocks, device=kernel.device,
        stages=kernel.stages, import_from=project.import_from, kernel=kernel.name, project=project.file)


def _from_file(file: Path, version: str | None, params: dict[str, str], model_name: str | None, start: Path) -> WorkloadRef:
    project = find(start) or find(file.parent)
    meant = kernels_of_file(project, file, version) if project is not None else None
    if project is None or meant is None:
        return WorkloadRef(path=file, name=model_name or file.stem, version=version, params=params,
                           clocks=project.clocks if project is not None else None)
    return workload_of(project, meant, params, model_name)


def _as_script(workload: WorkloadRef, typed: str | None, script_args: Sequence[str] | None) -> WorkloadRef:
    """The same, told to run as a script where it is one. typed: the file as the user wrote it."""
    if workload.source is not None and workload.source.function is not None:
        if script_args is not None:
            raise BadInput("not_a_script", f"{workload.name} {workload.version} is a function, and -- is for scripts",
                           where=str(workload.source.path), fix="leave -- out")
        return workload
    if script_args is None and (workload.path.suffix not in (".py", "") or not is_script(workload.path)):
        return workload
    script = ScriptRef(argv0=typed or str(workload.path), argv=script_argv(workload.params, script_args or ()))
    return workload.model_copy(update={"script": script})


def refuse_script(workload: WorkloadRef, verb: str) -> None:
    """For verbs that must load their workload. Raises BadInput naming the forms they take, or the line that hides the file's form."""
    if workload.script is not None:
        if (fault := syntax_fault(workload.path)) is not None:
            raise BadInput("syntax_error", f"SyntaxError: {fault[1]}, and no entry point is seen", where=f"{workload.path}:{fault[0]}",
                           fix="correct the file, or run this with the Python that it is written for")
        raise BadInput("script_not_taken", f"the file has {lacks(workload.path)}, so it is a script, and {verb} takes no scripts",
                       where=str(workload.path),
                       fix="define get_model_and_input() -> (model, input); or Model, get_inputs() and get_init_inputs(); or VERSIONS "
                           "and get_inputs(). profile_kernel runs scripts")

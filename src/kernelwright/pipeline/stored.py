"""Stored profiles: where they lie, how they are read, and which one a person means."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from ..model.errors import BadInput, NotWritable
from ..model.files import begin_profile
from ..model.profile import Profile
from ..model.workload import WorkloadRef
from ..project import Kernel, Project, read_project
from ..project.fingerprint import fingerprint, versions_of_file
from .source import exists

MAX_NAME_CHARACTERS = 100


def safe_name(text: str) -> str:
    """A file name out of any text: letters, digits, "._=-" stay, the rest becomes "_"; at most 100 characters."""
    return re.sub(r"[^\w.=-]+", "_", text).strip("._")[:MAX_NAME_CHARACTERS] or "unnamed"


def analysis_folder(mode: str, name: str, out_dir: Path | None) -> Path:
    """out_dir, or a new folder for what is analysed without a run; raw/ is made in it. Raises NotWritable."""
    stamp = datetime.now(timezone.utc).strftime("%Y%m%d-%H%M%S-%f")
    folder = out_dir or Path.cwd() / "out" / "profiles" / mode / safe_name(name) / "default" / stamp
    try:
        begin_profile(folder)
    except OSError as error:
        raise NotWritable(error, folder) from error
    return folder.resolve()


def profile_roots(*folders: Path) -> list[Path]:
    """Where stored profiles may lie: out/profiles of the current folder, then of `folders`."""
    return list(dict.fromkeys((folder / "out" / "profiles").resolve() for folder in (Path.cwd(), *folders)))


def params_folder(params: Mapping[str, Any]) -> str:
    """The <params> part of the artifact tree, e.g. "b=32_s=16_dtype=bfloat16"; "default" without parameters."""
    return safe_name("_".join(f"{key}={value}" for key, value in params.items())) if params else "default"


def read_params(folder: Path) -> dict[str, Any]:
    """params.json of a stored profile. Raises BadInput."""
    try:
        document: dict[str, Any] = json.loads((folder / "params.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadInput("no_params", "has no readable params.json", where=str(folder.absolute()), fix="name a profile's folder") from error
    if not isinstance(document, dict):
        raise BadInput("no_params", "has a params.json that is no object", where=str(folder.absolute()), fix="profile again")
    return document


@dataclass(frozen=True)
class Baseline:
    """A stored profile that another stands against."""

    profile: Profile
    doubt: str | None = None
    """Said where the version's text is no longer that of its profile."""


def find_baseline(named: str, profile: Profile, workload: WorkloadRef) -> Baseline:
    """The stored profile that is meant; whether the two may be compared is the caller's question (report layer).

    A version of the same kernel means its newest stored profile with the same mode, parameters and device. Another word that is a
    folder or profile.json is taken as it is. Raises BadInput where there is none, with the reason.
    """
    return Baseline(Profile.load(Path(named))) if is_place(named, workload) else _stored(named, profile, workload, "--baseline")


def check_baseline(named: str, mode: str, workload: WorkloadRef) -> None:
    """Before anything is measured: raises BadInput where no profile of that version is stored in this mode, whatever its parameters."""
    roots = _roots(workload)
    runs = [file.parent for root in roots for file in root.glob(f"{mode}/{safe_name(workload.name)}/*/*/profile.json")]
    if any(_version_of(run) == named for run in runs):
        return
    looked = ", ".join(str(root / mode / safe_name(workload.name)) for root in roots)
    raise BadInput("no_baseline", f"no stored profile of {workload.name} {named} in mode {mode}", where="--baseline",
                   fix=f"profile it first, or name a profile's folder (looked in {looked})")


def _version_of(run: Path) -> object:
    try:
        params = read_params(run)
        return params["version"] if "version" in params else Profile.load(run).capture_metadata.version
    except BadInput:
        return None


def _roots(workload: WorkloadRef) -> list[Path]:
    return profile_roots(*([workload.project.parent] if workload.project is not None else []))


def is_place(named: str, workload: WorkloadRef) -> bool:
    """Whether a baseline is named by its folder or profile.json. A version of the project wins over a folder of the same name."""
    project = read_project(workload.project) if workload.project is not None else None
    kernel = project.kernels.get(workload.kernel or "") if project is not None else None
    return exists(Path(named)) and (kernel is None or named not in _versions(kernel))


def _versions(kernel: Kernel) -> tuple[str, ...]:
    return kernel.version_names or tuple(versions_of_file(kernel.file) if kernel.file is not None else ())


def baseline_of_project(profile: Profile, workload: WorkloadRef) -> Baseline | None:
    """The stored profile that the project file's `baseline:` means; None where it asks for none, or the profile is of the first version.
    Raises BadInput where it asks for one that is not there, with the reason."""
    project = read_project(workload.project) if workload.project is not None else None
    kernel = project.kernels.get(workload.kernel or "") if project is not None else None
    if project is None or kernel is None or kernel.baseline.kind == "none":
        return None
    where = f"{project.file}: kernels.{kernel.name}.baseline"
    version = kernel.baseline.version
    if kernel.baseline.kind == "accepted":
        version = kernel.accepted
        if version is None:
            raise BadInput("no_baseline", f"no version of {kernel.name} is accepted", where=where, fix="name it: `accepted: VERSION`")
    elif kernel.baseline.kind == "previous":
        own = profile.capture_metadata.version
        names = _versions(kernel)
        version = names[names.index(own) - 1] if own in names and names.index(own) else None
    return _stored(version, profile, workload, where) if version is not None else None


def _stored(version: str, profile: Profile, workload: WorkloadRef, where: str) -> Baseline:
    own = profile.capture_metadata
    place = Path(own.mode) / safe_name(workload.name) / params_folder(profile.parameters)
    roots = _roots(workload)
    runs = [run for root in roots if (root / place).is_dir() for run in (root / place).iterdir() if (run / "profile.json").is_file()]
    reason, text = "", _text_of(version, workload)
    edited: Baseline | None = None
    for run in sorted(runs, key=lambda run: run.name, reverse=True):
        if edited is not None and not is_of_text(run, text):  # from here on only what an edit that was undone left
            continue
        stored = Profile.load(run)
        theirs = stored.capture_metadata
        if theirs.version != version:
            continue
        unlike = [f"{name} is {getattr(theirs, field)}, this one's {getattr(own, field)}" for name, field in _SAME
                  if getattr(theirs, field) != getattr(own, field)]
        if _cold(stored) != _cold(profile):
            unlike.append("timing was with --flush-l2, this one's was without" if _cold(stored) else
                          "timing was without --flush-l2, this one's was with")
        if stored.parameters != profile.parameters:
            unlike.append("parameters differ")
        if not unlike and not edited_since(run, text):
            return Baseline(stored)
        if not unlike:
            edited = Baseline(stored, f"the baseline {version} was edited since its profile ({run}), whose times may not be its present "
                                      "text's: profile it again")
            continue
        reason = reason or f": {run} can't be compared, its {'; its '.join(unlike)}"
    if edited is not None:
        return edited
    looked = ", ".join(str(root / place) for root in roots)
    raise BadInput("no_baseline", f"no stored profile of {workload.name} {version} with these parameters on this device{reason}",
                   where=where, fix=f"profile it first, or name a profile's folder (looked in {looked})")


def _text_of(version: str, workload: WorkloadRef) -> str | None:
    """The fingerprint of a version's present text; None where it is gone or can't be read."""
    project = read_project(workload.project) if workload.project is not None else None
    kernel = project.kernels.get(workload.kernel or "") if project is not None else None
    return present_text(project, kernel, version) if project is not None and kernel is not None else text_of_file(workload.path, version)


def present_text(project: Project, kernel: Kernel, version: str | None) -> str | None:
    """The fingerprint of a version as its kernel's files are now (None: of the kernel without versions); None where it is gone or can't be
    read."""
    found = kernel.version(version) if version is not None else None
    source = found.source if found is not None else None
    file = kernel.file if kernel.file is not None and (source is None or source.function is not None) else None
    if file is None:
        file = found.file(kernel) if found is not None else None
    if file is None:
        return None
    names = versions_of_file(file) if source is None and version is not None else []
    if source is None and version is not None and version not in names and (names or found is None):
        return None
    return fingerprint(WorkloadRef(path=file, name=kernel.name, version=version, source=source, import_from=project.import_from,
                                   project=project.file))


def text_of_file(file: Path, version: str | None) -> str | None:
    """The same of a file without a project."""
    if version is not None and version not in versions_of_file(file):
        return None
    return fingerprint(WorkloadRef(path=file, name=file.stem, version=version))


def edited_since(run: Path, text: str | None) -> bool:
    """Whether a stored profile is of another text than this; False where one of the two isn't known."""
    try:
        known = read_params(run).get("source_sha256")
    except BadInput:
        return False
    return text is not None and isinstance(known, str) and known != text


def is_of_text(run: Path, text: str | None) -> bool:
    """Whether a stored profile is known to be of just this text."""
    try:
        return text is not None and read_params(run).get("source_sha256") == text
    except BadInput:
        return False


def newest_stored(workload: WorkloadRef, mode: str) -> tuple[Profile, Path] | None:
    """The newest stored profile of this version's present text with the given parameters (the others may be any, and the device too), and
    its folder; None where there is none. Whether it can stand for a measurement is told by `reuse.reusable`."""
    for run in runs_of_text(workload, mode):
        known = read_params(run).get("parameters")
        if isinstance(known, dict) and all(str(known.get(key)) == value for key, value in workload.params.items()):
            return Profile.load(run), run
    return None


def runs_of_text(workload: WorkloadRef, mode: str) -> Iterator[Path]:
    """Folders of stored profiles of this version's present text, the newest first; unreadable ones are passed over."""
    text = fingerprint(workload)
    roots = _roots(workload)
    runs = [file.parent for root in roots for file in root.glob(f"{mode}/{safe_name(workload.name)}/*/*/profile.json")]
    for run in sorted(runs, key=lambda run: run.name, reverse=True):
        try:
            params = read_params(run)
        except BadInput:
            continue
        if text is not None and params.get("source_sha256") == text and params.get("version") == workload.version:
            yield run


def _cold(profile: Profile) -> bool:
    return profile.timing is not None and profile.timing.cold


_SAME = (("device", "device_name"), ("dtype", "dtype"), ("--compile-mode", "compile_mode"))
"""(in words, field of CaptureMetadata): what a baseline must share besides mode, parameters and --flush-l2."""

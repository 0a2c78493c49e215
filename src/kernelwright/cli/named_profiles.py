"""The stored profiles that the words of `compare` mean."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..model.errors import BadInput
from ..model.nearest import did_you_mean
from ..model.profile import Profile
from ..model.saying import Say
from ..pipeline.ncu import is_report_target
from ..pipeline.source import exists
from ..pipeline.stored import edited_since, is_of_text, present_text, profile_roots, read_params, text_of_file
from ..project import Project, find


@dataclass(frozen=True)
class _Stored:
    """One complete stored profile."""

    kernel: str
    version: str | None
    folder: Path
    made: str
    """In which mode and with which parameters and settings, to be compared and shown."""
    workload: Path | None = None
    """The file that was profiled."""


@dataclass(frozen=True)
class Named:
    """The profile that a word means."""

    place: Path
    doubt: str | None = None
    """Said where the version was edited since; a folder or file that is named is meant as it is."""


def find_profiles(named: Sequence[str], say: Say, roots: Sequence[Path] | None = None) -> list[Named]:
    """A file, a report or a profile's folder as it is; a folder of profiles: its newest; other words are a kernel, a version or
    KERNEL:VERSION: of the modes, parameters and settings that all of them have stored profiles in, the newest. Where they have none in
    common, the newest of each, and a line says so.

    roots: .../out/profiles, laid out as <mode>/<kernel>/<params>/<timestamp>; default: of the current folder and the project's. Raises
    BadInput with what there is.
    """
    places = [_place(name) for name in named]
    if None not in places:
        return [Named(place) for place in places if place is not None]
    project = find(Path.cwd())
    if roots is None:
        roots = _roots(project)
    stored = [item for root in roots for item in _all_stored(root)]
    meant = [_meant(name, stored, roots) if place is None else [] for name, place in zip(named, places, strict=True)]
    fixed = [made for place in places if place is not None and (made := _made(place)) is not None]
    common = set.intersection(*({item.made for item in items} for items in meant if items), *({made} for made in fixed))
    if common:
        made = max((item for items in meant for item in items if item.made in common), key=_age).made
        if len(common) > 1:
            say(f"compared at {made}, the newest of {len(common)} that all have profiles of")
        meant = [[item for item in items if item.made == made] for items in meant]
    newest = [_newest(items, project) if items else None for items in meant]
    if not common:
        say("no mode, parameters and settings are common to all that are compared; taken are the newest: " + "; ".join(
            f"{name} ({item.made})" for name, item in zip(named, newest, strict=True) if item is not None))
    found = [_named(item, project) if item is not None else Named(place) if place is not None else None
             for place, item in zip(places, newest, strict=True)]
    return [each for each in found if each is not None]


def profiled(words: Sequence[str], say: Say) -> list[str]:
    """Those of KERNEL:VERSION that have a stored profile, here or in the project's folder; a line names the others."""
    stored = {f"{item.kernel}:{item.version}" for root in _roots(find(Path.cwd())) for item in _all_stored(root)}
    missing = [word for word in words if word not in stored]
    if missing:
        say(f"left out, for they have no stored profile: {', '.join(missing)}")
    return [word for word in words if word in stored]


def _roots(project: Project | None) -> list[Path]:
    return profile_roots(*([project.folder] if project is not None else []))


def _newest(items: Sequence[_Stored], project: Project | None) -> _Stored:
    """The newest; where that one's version was edited since, and back again, the newest of its present text made in the same way."""
    newest = max(items, key=_age)
    text = _present_text(newest, project)
    if not edited_since(newest.folder, text):
        return newest
    alike = [item for item in items if (item.kernel, item.version, item.made) == (newest.kernel, newest.version, newest.made)
             and is_of_text(item.folder, text)]
    return max(alike, key=_age, default=newest)


def _present_text(item: _Stored, project: Project | None) -> str | None:
    kernel = project.kernels.get(item.kernel) if project is not None else None
    if project is not None and kernel is not None:
        return present_text(project, kernel, item.version)
    return text_of_file(item.workload, item.version) if item.workload is not None else None


def _named(item: _Stored, project: Project | None) -> Named:
    if not edited_since(item.folder, _present_text(item, project)):
        return Named(item.folder)
    words = f"{item.kernel} {item.version}" if item.version else item.kernel
    return Named(item.folder, f"{words} was edited since its profile ({item.folder}): profile it again")


def _place(named: str) -> Path | None:
    """What is named as a path; None for a word."""
    path = Path(named)
    if is_report_target(named):
        return path
    if os.path.isdir(named) and not (path / "profile.json").exists():
        inside = [file.parent for depth in range(1, 5) for file in path.glob("*/" * depth + "profile.json")]
        return max(inside, key=lambda folder: folder.name, default=path)
    return path if exists(path) else None


def _meant(named: str, stored: Sequence[_Stored], roots: Sequence[Path]) -> list[_Stored]:
    matching = [item for item in stored if named in (item.kernel, item.version, f"{item.kernel}:{item.version}")]
    kernels = sorted({item.kernel for item in matching})
    if len(kernels) > 1:
        raise BadInput("ambiguous_version", f"more than one kernel has a version {named!r}", where="compare",
                       fix=f"one of: {', '.join(f'{kernel}:{named}' for kernel in kernels)}")
    if not matching:
        known = sorted({f"{item.kernel}:{item.version}" if item.version else item.kernel for item in stored})
        places = " and ".join(str(root) for root in roots)
        raise BadInput("no_profile", f"no such folder or file, and no stored profile of that name under {places}", where=named,
                       fix=did_you_mean(Path(named), f"stored: {', '.join(known[:20])}" if known else "profile it first", folders=True))
    return matching


def _age(item: _Stored) -> str:
    return item.folder.name


def _all_stored(root: Path) -> list[_Stored]:
    """Every complete stored profile; unreadable ones are passed over."""
    found: list[_Stored] = []
    for file in root.glob("*/*/*/*/profile.json"):
        try:
            params = read_params(file.parent)
        except BadInput:
            continue
        if isinstance(params.get("kernel"), str):
            version, made, workload = params.get("version"), _made(file.parent), params.get("workload")
            found.append(_Stored(params["kernel"], version if isinstance(version, str) else None, file.parent, made or "",
                                 Path(workload) if isinstance(workload, str) else None))
    return found


def compile_mode_of(place: Path, profile: Profile) -> str | None:
    """The --compile-mode of a stored profile; None where it had none, or neither the profile nor its params.json tells."""
    if (own := _compile_mode({"compile_mode": profile.capture_metadata.compile_mode})) is not None:
        return own
    try:
        return _compile_mode(read_params((place if place.is_dir() else place.parent).absolute()).get("options"))
    except BadInput:
        return None


def _compile_mode(options: object) -> str | None:
    found = options.get("compile_mode") if isinstance(options, dict) else None
    return found if found in ("inductor", "cudagraphs") else None


def _made(place: Path) -> str | None:
    """Mode, parameters and settings of a stored profile, by its params.json, else by where it lies; None where neither tells."""
    folder = (place if place.is_dir() else place.parent).absolute()
    try:
        params = read_params(folder)
    except BadInput:
        return None
    mode, parameters = params.get("mode"), params.get("parameters")
    if not isinstance(mode, str):
        if len(folder.parents) < 3:
            return None
        mode = folder.parents[2].name
    if not isinstance(parameters, dict):
        return f"{mode} {folder.parent.name}"
    options = params.get("options")
    compiled, flushed = _compile_mode(options), options.get("flush_l2") if isinstance(options, dict) else None
    settings = [f"--compile-mode {compiled}"] * (compiled is not None) + ["--flush-l2"] * (flushed is True)
    return " ".join([mode, *(f"{key}={json.dumps(value)}" for key, value in sorted(parameters.items())), *settings])

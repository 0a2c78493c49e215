"""Mode ncu on reports that exist: `profile_kernel FILE.ncu-rep`, or a folder of them. Needs no GPU and no interpreter that has torch."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import __version__
from ..model.errors import BadInput, KernelwrightError, NotWritable
from ..model.files import PARTIAL, leave_error
from ..model.profile import SCHEMA_VERSION, Profile
from ..model.saying import Say, silent
from ..readers.ncu_details import read_details
from ..readers.ncu_records import KernelDetails, NcuDetails
from .forms import hide_secrets
from .ncu_profile import Setting, build_profile, facts
from .ncu_rules import group_name, groups
from .stored import analysis_folder, read_params, safe_name

SUFFIX = ".ncu-rep"
PROFILE_FILE = "profile.json"
MOST_REPORTS = 100
MAX_PATTERN = 1000
REPORT_NAMES = "ncu_reports"
"""Key of params.json: the reports in raw/."""


@dataclass(frozen=True)
class Selection:
    """Which launches are wanted; all unless told otherwise."""

    kernel: str | None = None
    """Regular expression, searched in a kernel's function and full name."""
    launch: int | None = None
    """The N-th of the launches that are left, from 0, as ncu numbers them."""
    operator: str | None = None
    """Part of the name of an NVTX range around the launch, e.g. aten::addmm."""
    heaviest: int | None = None
    """Only the k kernels that take the most of ncu's time."""

    def is_all(self) -> bool:
        """Nothing is left out."""
        return (self.kernel, self.launch, self.operator, self.heaviest) == (None, None, None, None)


@dataclass(frozen=True)
class NcuRun:
    """A finished analysis: the document, what was read, where it goes, and params.json."""

    profile: Profile
    reports: tuple[NcuDetails, ...]
    out_dir: Path
    params: Mapping[str, Any]


def is_report_target(target: str, *, as_folder: bool = False) -> bool:
    """Whether TARGET names a report of ncu: by its suffix, or a folder that holds one. as_folder: any folder is meant as one of reports."""
    return target.endswith(SUFFIX) or (os.path.isdir(target) and (as_folder or bool(_reports_in(Path(target)))))


def _reports_in(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.name.endswith(SUFFIX))[:MOST_REPORTS + 1]
    except OSError:
        return []


def find_reports(target: Path) -> list[Path]:
    """The file itself, or the reports in the folder, by name. Raises BadInput."""
    if not os.path.isdir(target):
        return [target]
    found = _reports_in(target)
    if not found:
        raise BadInput("no_reports", f"the folder holds no {SUFFIX} file", where=str(target.absolute()), fix=f"name a {SUFFIX} file")
    if len(found) > MOST_REPORTS:
        raise BadInput("too_many_reports", f"the folder holds more than {MOST_REPORTS} reports", where=str(target.absolute()),
                       fix="name the one that you mean, or move some away")
    return found


def read_reports(files: Sequence[Path], selection: Selection | None = None) -> tuple[NcuDetails, ...]:
    """Reads them and keeps the wanted launches. Raises BadInput where none is left, or a report can't be read."""
    selection = selection or Selection()
    seen: list[str] = []
    details = tuple(read_details(file, _keep(selection, seen)) for file in files)
    if selection.launch is not None:
        details = _nth(details, selection.launch)
    if selection.heaviest is not None:
        details = _heaviest(details, selection.heaviest)
    if not any(report.kernels for report in details):
        names = ", ".join(list(dict.fromkeys(seen))[:8])
        raise BadInput("no_such_launch", "no launch in the report is the one asked for", where=_asked(selection),
                       fix=f"kernels in it: {names}" if names else "leave the choice out")
    return tuple(report for report in details if report.kernels)


def _asked(selection: Selection) -> str:
    given = (("--kernel", selection.kernel), ("--launch", selection.launch), ("--operator", selection.operator))
    return " ".join(f"{name} {value}" for name, value in given if value is not None)


def _keep(selection: Selection, seen: list[str]) -> Callable[[KernelDetails], bool]:
    pattern = compiled_pattern(selection.kernel) if selection.kernel is not None else None

    def keep(kernel: KernelDetails) -> bool:
        if len(seen) < 1000:
            seen.append(group_name(kernel))
        if pattern is not None and not (pattern.search(kernel.function) or pattern.search(kernel.name)):
            return False
        return selection.operator is None or any(selection.operator in name for name in kernel.nvtx)

    return keep


def compiled_pattern(text: str) -> re.Pattern[str]:
    """--kernel as a regular expression. Raises BadInput."""
    try:
        if len(text) > MAX_PATTERN:
            raise re.error("it is longer than 1000 characters")
        return re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise BadInput("bad_pattern", f"is no regular expression: {error}", where=f"--kernel {text[:80]}",
                       fix="give part of the kernel's name, or a regular expression in Python's form") from error


def _nth(details: Sequence[NcuDetails], number: int) -> tuple[NcuDetails, ...]:
    every = [(place, kernel) for place, report in enumerate(details) for kernel in report.kernels]
    chosen = every[number:number + 1]
    return tuple(NcuDetails(report.file, report.tool, tuple(kernel for at, kernel in chosen if at == place), report.warnings)
                 for place, report in enumerate(details))


def _heaviest(details: Sequence[NcuDetails], count: int) -> tuple[NcuDetails, ...]:
    names = set(list(groups(kernel for report in details for kernel in report.kernels))[:count])
    return tuple(NcuDetails(report.file, report.tool, tuple(kernel for kernel in report.kernels if group_name(kernel) in names),
                            report.warnings) for report in details)


def analyse(target: Path, out_dir: Path | None, *, selection: Selection | None = None, name: str | None = None,
            device_name: str | None = None, command: Sequence[str] = (), say: Say = silent) -> NcuRun:
    """Analyse captures made elsewhere; their files are copied into raw/. The caller writes the documents (report layer).

    Raises BadInput, MachineLacks, NotWritable; once a folder was made, a failure leaves error.json in it.
    """
    selection = selection or Selection()
    files = find_reports(target)
    say(f"reading {len(files)} report{'s' if len(files) > 1 else ''} of ncu")
    reports = read_reports(files, selection)
    setting = Setting(name=name or _name(target), device_name=device_name, kernelwright_version=__version__)
    profile = build_profile(reports, setting)
    folder = analysis_folder("ncu", setting.name, out_dir)
    try:
        copied = copy_reports([report.file for report in reports], folder / "raw")
    except (KernelwrightError, OSError) as error:
        fault = error if isinstance(error, KernelwrightError) else NotWritable(error, folder)
        leave_error(folder, fault)
        raise fault from error
    return NcuRun(profile, reports, folder, ncu_params(profile, setting, reports, copied, selection, target, folder, command))


def _name(target: Path) -> str:
    return (target.absolute().name.removesuffix(SUFFIX) or "report")[:500]


def copy_reports(files: Sequence[Path], raw: Path) -> list[str]:
    """Copies them whole or not at all, so that ncu-ui opens them from the profile's folder; their names in raw/."""
    names: list[str] = []
    for file in files:
        name = unused_name(safe_name(file.name.removesuffix(SUFFIX)), names, SUFFIX)
        names.append(name)
        if (raw / name).exists() and os.path.samefile(file, raw / name):
            continue
        handle, temporary = tempfile.mkstemp(prefix=f".{name[:40]}.", suffix=PARTIAL, dir=raw)
        os.close(handle)
        try:
            shutil.copyfile(file, temporary)
            Path(temporary).chmod(0o644)
            os.replace(temporary, raw / name)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    return names


def unused_name(stem: str, used: Sequence[str], suffix: str) -> str:
    """stem + suffix, with a number where that is taken (letter case aside: some file systems know none)."""
    taken = {name.casefold() for name in used}
    name, number = f"{stem}{suffix}", 2
    while name.casefold() in taken:
        name, number = f"{stem}_{number}{suffix}", number + 1
    return name


def ncu_params(profile: Profile, setting: Setting, reports: Sequence[NcuDetails], copied: Sequence[str], selection: Selection,
               target: Path, folder: Path, command: Sequence[str]) -> dict[str, Any]:
    """params.json of a profile of mode ncu."""
    return {
        "kernel": setting.name, "version": setting.version, "mode": "ncu", "workload": str(target.absolute()), "parameters": {},
        "inputs": [], "out_dir": str(folder), "device": {"device_name": profile.capture_metadata.device_name},
        "versions": {"kernelwright": __version__, "torch": None, "schema": SCHEMA_VERSION,
                     "ncu": sorted({report.tool.removeprefix("ncu").strip() or None for report in reports}, key=str)},
        "interpreter": None, "clocks": profile.capture_metadata.clocks.model_dump(), REPORT_NAMES: list(copied),
        "selection": {"kernel": selection.kernel, "launch": selection.launch, "operator": selection.operator,
                      "heaviest": selection.heaviest},
        "captured": facts(profile), "command": hide_secrets(command),
    }


def read_stored(place: Path) -> tuple[str, tuple[NcuDetails, ...]]:
    """(name, launches) of a report, a folder of reports, or a stored profile of mode ncu (its own choice of launches). Raises BadInput."""
    if (place / PROFILE_FILE).is_file():
        params = read_params(place)
        files = _reports_in(place / "raw")
        if not files:
            raise BadInput("no_reports", f"its raw/ holds no {SUFFIX} file", where=str(place.absolute()), fix="capture it again")
        return str(params.get("kernel", place.name))[:200], read_reports(files, _stored_selection(params.get("selection")))
    return _name(place), read_reports(find_reports(place))


def _stored_selection(found: object) -> Selection:
    """What params.json says; anything else than it wrote chooses all."""
    chosen = found if isinstance(found, Mapping) else {}
    texts = {key: chosen[key] for key in ("kernel", "operator") if isinstance(chosen.get(key), str)}
    numbers = {key: chosen[key] for key in ("launch", "heaviest") if isinstance(chosen.get(key), int) and chosen[key] >= 0}
    return Selection(**texts, **numbers)

"""A project: the kernels that kernelwright.yaml names, their versions, and what each is measured with and held to."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from ..model.base import Record
from ..model.errors import BadInput
from ..model.workload import Device, ParamValue, VersionSource


class Version(Record):
    """One version of a kernel."""

    name: str
    source: VersionSource | None = None
    """Its own file, or a function in one; None: an entry of VERSIONS in the kernel's file."""

    def file(self, kernel: Kernel) -> Path:
        """The file whose text this version is."""
        found = self.source.path if self.source is not None else kernel.file
        assert found is not None  # the reader refuses a kernel with neither
        return found


class Baseline(Record):
    """What a profile stands against when no --baseline is given."""

    kind: Literal["version", "accepted", "previous", "none"] = "none"
    """version: a named one; accepted: the kernel's `accepted` version; previous: the version listed before the profiled one."""
    version: str | None = None
    """The named version (kind "version")."""


class Budget(Record):
    """What one version must hold to; judged by `bench --check`."""

    version: str | None = None
    """None: the kernel's usual version."""
    params: dict[str, ParamValue] = Field(default_factory=dict)
    """They replace the kernel's default parameters one by one."""
    duration_us: float | None = None
    """Most that one call may take, in us."""
    versus: str | None = None
    """Another version of the kernel, measured beside this one."""
    slower_pct: float = 0.0
    """How many percent slower than `versus` it may be."""
    line: int = 0
    """Where it stands in the project file, from 1."""


class Kernel(Record):
    """One kernel of a project. Paths are absolute."""

    name: str
    file: Path | None = None
    """The workload with VERSIONS, or the one whose inputs all versions that are functions get; None where each version is a workload."""
    versions: tuple[Version, ...] = ()
    """In the order of their making; empty: whatever the file's VERSIONS has."""
    default_version: str | None = None
    params: dict[str, ParamValue] = Field(default_factory=dict)
    sweep: dict[str, tuple[ParamValue, ...]] = Field(default_factory=dict)
    """Parameter -> the values that a sweep goes through."""
    stages: tuple[str, ...] = ()
    """Stages that every profile with a timeline should show."""
    devlog: Path | None = None
    device: Device = "auto"
    accepted: str | None = None
    """The last version that was accepted."""
    baseline: Baseline = Baseline()
    budgets: tuple[Budget, ...] = ()

    @property
    def version_names(self) -> tuple[str, ...]:
        """Names of the versions, oldest first."""
        return tuple(version.name for version in self.versions)

    @property
    def files(self) -> tuple[Path, ...]:
        """Its file and those of its versions."""
        own = (self.file, *(version.source.path for version in self.versions if version.source is not None))
        return tuple(dict.fromkeys(file for file in own if file is not None))

    @property
    def usual_version(self) -> str | None:
        """What is meant when no version is named; None: the last of the file's VERSIONS."""
        if self.default_version is not None or not self.versions or self.versions[-1].source is None:
            return self.default_version
        return self.versions[-1].name

    def version(self, name: str) -> Version | None:
        """The version of that name; None where it is not listed."""
        return next((version for version in self.versions if version.name == name), None)

    def previous(self, name: str) -> str | None:
        """The version listed before `name`; None for the first and for one that is not listed."""
        names = self.version_names
        place = names.index(name) if name in names else 0
        return names[place - 1] if place else None

    def texts(self) -> dict[str, str]:
        """The default parameters as the command line would give them."""
        return {key: str(value) for key, value in self.params.items()}


class Project(Record):
    """One kernelwright.yaml. Paths are absolute."""

    file: Path
    kernels: dict[str, Kernel]
    clocks: str | None = None
    """What is asked of the GPU's clocks: none, lock or a number of MHz."""
    import_from: tuple[Path, ...] = ()
    """Folders that versions import from beside their own, e.g. where the project builds its extension."""

    @property
    def folder(self) -> Path:
        return self.file.parent

    def kernel(self, name: str) -> Kernel:
        """The kernel of that name. Raises BadInput with the choices."""
        if name in self.kernels:
            return self.kernels[name]
        raise BadInput("no_such_kernel", f"no kernel {name!r} in the project", where=str(self.file),
                       fix=f"one of: {', '.join(sorted(self.kernels))}")

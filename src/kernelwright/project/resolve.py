"""Which kernel and version are meant by a word, two words or a file; what can't be told is an error that lists the choices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..model.errors import BadInput
from .model import Kernel, Project, Version


@dataclass(frozen=True)
class Meant:
    """A kernel and one of its versions."""

    kernel: Kernel
    version: str | None
    """None: the last of the file's VERSIONS."""

    @property
    def words(self) -> str:
        """What a person types for it."""
        return f"{self.kernel.name} {self.version}" if self.version else self.kernel.name


def kernel_and_version(project: Project, word: str, version: str | None = None) -> Meant:
    """What `word [version]` means: a kernel (and its version), or a version that one kernel alone has.

    Raises BadInput no_such_kernel, no_such_version or ambiguous_version, each with the choices.
    """
    if version is not None or word in project.kernels:
        kernel = project.kernel(word)
        return Meant(kernel, _checked(project, kernel, version) if version is not None else kernel.usual_version)
    having = [kernel for _, kernel in sorted(project.kernels.items()) if word in kernel.version_names]
    if len(having) == 1:
        return Meant(having[0], word)
    if having:
        raise BadInput("ambiguous_version", f"version {word!r} is in more than one kernel", where=str(project.file),
                       fix="name the kernel too: " + " or ".join(f"{kernel.name} {word}" for kernel in having))
    raise BadInput("no_such_kernel", f"no kernel or version {word!r} in the project", where=str(project.file),
                   fix=f"one of: {choices(project)}")


def choices(project: Project) -> str:
    """Every kernel with its versions."""
    kernels = sorted(project.kernels.items())
    return "; ".join(f"{name} ({', '.join(kernel.version_names) or 'no versions listed'})" for name, kernel in kernels)


def _checked(project: Project, kernel: Kernel, version: str) -> str:
    if kernel.versions and kernel.version(version) is None:
        raise BadInput("no_such_version", f"{kernel.name} has no version {version!r}", where=str(project.file),
                       fix=f"one of: {', '.join(kernel.version_names)}")
    return version


def kernels_of_file(project: Project, file: Path, version: str | None) -> Meant | None:
    """What a file that somebody named is in the project; None when the project does not have it.

    A kernel's `file:` is that kernel; a version's own file is that version. Raises BadInput where it is several.
    """
    own = [Meant(kernel, version if version is not None else kernel.usual_version)
           for kernel in project.kernels.values() if kernel.file == file]
    having = [meant for meant in own if version is not None and meant.kernel.version(version) is not None]
    found = having or own or [Meant(kernel, one.name) for kernel in project.kernels.values() for one in _from(kernel, file)
                    if version in (None, one.name)]
    if len(found) > 1:
        raise BadInput("ambiguous_version", "the project file names this file more than once", where=str(file),
                       fix=f"name one of: {', '.join(meant.words for meant in found)}")
    return found[0] if found else None


def _from(kernel: Kernel, file: Path) -> Sequence[Version]:
    return [version for version in kernel.versions if version.source is not None and version.source.path == file]

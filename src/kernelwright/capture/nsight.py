"""Finds Nsight Compute (ncu) and Nsight Systems (nsys), also the nsys that hides inside Nsight Compute."""

from __future__ import annotations

import glob
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from .remedies import Packages, install, manager, sudo
from .system_view import SystemView

TARGET_FOLDERS = {"x86_64": "target-linux-x64", "AMD64": "target-linux-x64", "aarch64": "target-linux-sbsa-armv8"}
HOST_FOLDERS = {"target-linux-x64": "host-linux-x64", "target-linux-sbsa-armv8": "host-linux-armv8"}
PLACE_FOR_NSYS = ".local/share/kernelwright/nsys"
"""Under the home folder: where the fix assembles a working nsys, and where it is looked for afterwards."""
ASSEMBLED = "assembled from Nsight Compute"
IMPORTER_LIBRARIES = {"libdw.so.1": "libdw1", "libelf.so.1": "libelf1"}
"""What nsys's importer needs and minimal images lack -> the Debian/Ubuntu package that has it."""
LIBRARY_FOLDERS = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/lib/*-linux-gnu", "/usr/lib/*-linux-gnu")


@dataclass(frozen=True)
class Tool:
    """A profiler as found. path None: not found. problem "": it can be used."""

    name: str
    path: Path | None = None
    version: str | None = None
    source: str = ""
    """Where it was found: "--ncu-executable", "PATH", "CUDA toolkit", "Nsight Compute", ..."""
    problem: str = ""
    fix: str = ""
    """One command line to paste."""
    advice: str = ""

    @property
    def works(self) -> bool:
        """Found, answers, and lacks nothing."""
        return self.path is not None and not self.problem


def find_ncu(view: SystemView, named: str | None = None) -> Tool:
    """The first ncu: --ncu-executable, PATH, CUDA toolkits, Nsight Compute's own folders (newest first)."""
    patterns = [("CUDA toolkit", pattern) for pattern in _cuda_patterns(view, "ncu")]
    patterns += [("CUDA toolkit", "/usr/local/cuda*/nsight-compute-*/ncu"), ("Nsight Compute", "/opt/nvidia/nsight-compute/*/ncu")]
    for source, path in _places(view, "ncu", named, patterns):
        return _asked(view, "ncu", path, source)
    return _none(view, named, "ncu", "Nsight Compute is not installed")


def find_nsys(view: SystemView, named: str | None = None) -> Tool:
    """The first nsys: --nsys-executable, PATH, an assembled copy, CUDA toolkits, Nsight Systems, else inside Nsight Compute."""
    target = TARGET_FOLDERS.get(view.machine, "target-linux-x64")
    assembled = view.home() / PLACE_FOR_NSYS / target / "nsys"
    patterns = [("CUDA toolkit", pattern) for pattern in _cuda_patterns(view, "nsys")]
    patterns += [("CUDA toolkit", "/usr/local/cuda*/nsight-systems-*/bin/nsys")]
    patterns += [("Nsight Systems", f"/opt/nvidia/nsight-systems*/*/{folder}/nsys") for folder in ("bin", target)]
    for source, path in _places(view, "nsys", named, patterns, assembled):
        return _with_importer(view, _asked(view, "nsys", path, source))
    for pattern in ("/opt/nvidia/nsight-compute/*/host", "/usr/local/cuda*/nsight-compute-*/host"):
        for host in reversed(view.glob(pattern)):
            if (host / target / "nsys").is_file():
                return _hidden_nsys(view, host, target)
    return _none(view, named, "nsys", "Nsight Systems is not installed, nor hidden in a Nsight Compute")


def find_sanitizer(view: SystemView) -> Tool:
    """compute-sanitizer: PATH, CUDA toolkits (also beside their ncu). It is not asked for its version."""
    name = "compute-sanitizer"
    patterns = [("CUDA toolkit", pattern) for pattern in _cuda_patterns(view, name)]
    patterns += [("CUDA toolkit", f"/usr/local/cuda*/{name}/{name}"), ("CUDA toolkit", f"/usr/lib/nvidia-cuda-toolkit/{name}/{name}")]
    for source, path in _places(view, name, None, patterns):
        return Tool(name, path, None, source)
    ncu = view.which("ncu")
    if ncu is not None and (beside := ncu.resolve().parent / name).is_file():
        return Tool(name, beside, None, "beside ncu")
    if manager(view) == "conda":
        fix = install(view, Packages("", "", "-c nvidia cuda-sanitizer-api"))
    else:
        fix = (f"{sudo(view)}apt-get update && {sudo(view)}apt-get install -y "
               "$(apt-cache search --names-only '^cuda-sanitizer-[0-9]' | cut -d' ' -f1 | sort -V | tail -n 1)")
    return Tool(name, problem="compute-sanitizer is not installed", fix=fix,
                advice="it is part of the CUDA toolkit: put its bin folder on PATH, or set CUDA_HOME")


def missing_libraries(view: SystemView, *own_folders: Path) -> list[str]:
    """Which of IMPORTER_LIBRARIES no library folder of this machine has."""
    folders = [place for pattern in LIBRARY_FOLDERS for place in view.glob(pattern)]
    folders += [Path(part) for part in view.env.get("LD_LIBRARY_PATH", "").split(":") if part]
    return [name for name in IMPORTER_LIBRARIES if not any((folder / name).exists() for folder in [*folders, *own_folders])]


def _cuda_patterns(view: SystemView, name: str) -> list[str]:
    named = [view.env[variable] for variable in ("CUDA_HOME", "CUDA_PATH") if view.env.get(variable)]
    return [f"{glob.escape(folder)}/bin/{name}" for folder in named] + [f"/usr/local/cuda*/bin/{name}"]


def _places(
    view: SystemView, name: str, named: str | None, patterns: list[tuple[str, str]], assembled: Path | None = None
) -> Iterator[tuple[str, Path]]:
    if named is not None:
        path = view.which(named)
        if path is not None:
            yield f"--{name}-executable", path
        return
    on_path = view.which(name)
    if on_path is not None:
        yield "PATH", on_path
    if assembled is not None and assembled.is_file():
        yield ASSEMBLED, assembled
    for source, pattern in patterns:
        for path in reversed(view.glob(pattern)):
            if path.is_file():
                yield source, path


def _none(view: SystemView, named: str | None, name: str, problem: str) -> Tool:
    option = f"--{name}-executable PATH"
    if named is not None:
        return Tool(name, problem=f"{named} is no executable", advice=f"name the {name} program with {option}")
    fix, advice = _install_profiler(view, name)
    return Tool(name, problem=problem, fix=fix, advice=f"{advice}; or name an installed one with {option}")


def _install_profiler(view: SystemView, name: str) -> tuple[str, str]:
    """(command, what it needs)."""
    package = {"ncu": "nsight-compute", "nsys": "nsight-systems"}[name]
    if manager(view) == "conda" and name == "ncu":
        return install(view, Packages("", "", "-c nvidia nsight-compute")), "it comes from conda's nvidia channel"
    if view.which("apt-get") is None and view.which("dnf"):
        fix = f"{sudo(view)}dnf install -y {'cuda-nsight-compute' if name == 'ncu' else package}"
    else:
        # The packages' names hold the release: the newest one that the repository has.
        fix = (f"{sudo(view)}apt-get update && {sudo(view)}apt-get install -y "
               f"$(apt-cache search --names-only '^{package}-[0-9]' | cut -d' ' -f1 | sort -V | tail -n 1)")
    return fix, (f"the package is of NVIDIA's CUDA repository (developer.nvidia.com/cuda-downloads), or get it from "
                 f"developer.nvidia.com/{package}")


def _asked(view: SystemView, name: str, path: Path, source: str) -> Tool:
    ran = view.run([str(path), "--version"])
    match = re.search(r"[Vv]ersion\s+v?(\d+(?:\.\d+)+)", ran.stdout)
    if ran.exit_code == 0:
        return Tool(name, path, match[1] if match else None, source)
    words = (ran.stderr.strip() or ran.stdout.strip() or f"exit status {ran.exit_code}").splitlines()[-1]
    fix, advice = (_library_fix(view, words), "") if _library_fix(view, words) else _install_profiler(view, name)
    return Tool(name, path, None, source, problem=f"`{name} --version` fails: {words}", fix=fix, advice=advice)


def _with_importer(view: SystemView, tool: Tool) -> Tool:
    """nsys records without its importer too, and then can't turn the recording into a report: that is told beforehand."""
    if not tool.works or tool.path is None:
        return tool
    program = tool.path.resolve()
    host_folder = HOST_FOLDERS.get(program.parent.name)
    if host_folder is None:  # started by a script of its own: where its parts are can't be told from here
        return tool
    importer = program.parent.parent / host_folder / "QdstrmImporter"
    if not importer.exists():
        fix, advice = _install_profiler(view, "nsys")
        problem = f"{tool.path} has no importer ({importer} is not there): recordings can't be read"
        return replace(tool, problem=problem, fix=fix, advice=advice)
    lacking = missing_libraries(view, program.parent, importer.parent, importer.resolve().parent)
    if lacking and tool.source == ASSEMBLED:
        return replace(tool, problem=f"{' and '.join(lacking)} missing, which its importer needs", fix=_install(view, lacking))
    return tool


def _library_fix(view: SystemView, words: str) -> str:
    lacking = [library for library in IMPORTER_LIBRARIES if library in words]
    return _install(view, lacking) if lacking else ""


def _install(view: SystemView, libraries: list[str]) -> str:
    apt = " ".join(IMPORTER_LIBRARIES[name] for name in libraries)
    return install(view, Packages(apt, "elfutils-libs elfutils-libelf", "-c conda-forge elfutils"))


def _hidden_nsys(view: SystemView, host: Path, target: str) -> Tool:
    """The nsys under Nsight Compute's host/: its command line and its importer lie in two folders that nsys expects side
    by side as target-*/ and host-*/, so a recording can't be imported until they are put together."""
    path = host / target / "nsys"
    host_folder = HOST_FOLDERS[target]
    importers = [folder for folder in sorted(host.glob("linux-desktop-*")) if folder.is_dir()]
    source = "inside Nsight Compute"
    if not importers:
        return Tool("nsys", path, None, source, problem=f"in {host}, without its importer (linux-desktop-*)",
                    **dict(zip(("fix", "advice"), _install_profiler(view, "nsys"), strict=True)))
    lacking = missing_libraries(view, path.parent, importers[-1])
    steps = [_install(view, lacking)] if lacking else []
    if not (host / host_folder).is_dir():
        # A copy, not a link: nsys looks for host-*/ beside the real place of its own program.
        steps.append(_assemble(view.home() / PLACE_FOR_NSYS, host / target, importers[-1], host_folder))
    if not steps:
        return _asked(view, "nsys", path, source)
    apart = [] if (host / host_folder).is_dir() else [f"its importer lies apart, in {importers[-1].name}"]
    reasons = apart + ([f"{' and '.join(lacking)} missing"] if lacking else [])
    return Tool("nsys", path, None, source, problem=f"hidden in {host}: {'; '.join(reasons)}", fix=" && ".join(steps))


def _assemble(place: Path, target: Path, importer: Path, host_folder: str) -> str:
    quoted = {name: shlex.quote(str(path)) for name, path in
              {"place": place, "target": target, "importer": importer, "host": place / host_folder}.items()}
    return "mkdir -p {place} && cp -r {target} {place}/ && ln -sfn {importer} {host}".format(**quoted)

"""How far the candidate's process is confined: the plan that it starts with, and what it reports (docs/judge-separation.md)."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ..capture.cache import cache_dir
from ..capture.root import cache_folders
from ..model.verdict import Mechanism, Separation, Tier
from .options import JudgeOptions
from .scratch import CANARY, PREFIX
from .untrusted import MAX_FILE_BYTES

VARIABLE = "KERNELWRIGHT_CONFINE"
MAX_LOG_BYTES = 64 * 2**20
SHARE_OF_MEMORY = 0.8
LEAST_MEMORY_BYTES = 2**30
"""Importing torch alone takes a third of this."""
KEPT_CACHES = 20
KEPT_CACHE_BYTES = 2 * 2**30
"""Compiled code of so many candidates, and so much of it, is kept for the next judgement of the same file."""
HEADERS = "precompiled_headers"
"""Folder of Inductor's in the temporary folder, whatever TORCHINDUCTOR_CACHE_DIR says (torch/_inductor/codecache.py)."""
CACHES = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton", "TORCH_EXTENSIONS_DIR": "extensions",
          "CUDA_CACHE_PATH": "cuda", "CUPY_CACHE_DIR": "cupy", "NUMBA_CACHE_DIR": "numba",
          "CUDA_TILE_CACHE_DIR": "cutile", "CUTE_DSL_CACHE_DIR": "cute"}
"""Where compilers keep what they made (torch/_inductor/runtime/cache_dir_utils.py, triton/knobs.py, torch/utils/cpp_extension.py,
cutile_cache/_env.py; CUDA's, CuPy's, Numba's and CUTLASS's manuals)."""
OWN_FOLDERS = ("judge", "probe", "capture", "model")
WRITING = "no writing outside"
KNOWN_EXPLOIT = frozenset({"nothing left running", "sealed replies", "files hashed before and after", "timing audited"})
HOSTILE = KNOWN_EXPLOIT | {
    "limits", "no new privileges", "no network", WRITING, "reference's files unreadable",
    "other processes' memory unreadable", "no signals to the judge", "compile caches of its own"}
"""What must have held for a tier; whatever else is reported is told, and decides nothing."""


class _Check(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)
    name: Annotated[str, Field(max_length=100)]
    held: bool
    detail: Annotated[str, Field(max_length=1000)]


class Report(BaseModel):
    """What the worker wrote before any code of the candidate ran."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)
    pid: int = Field(gt=0)
    checks: list[_Check] = Field(max_length=100)


@dataclass
class Confinement:
    """Of one candidate's worker. `folder` is the one it may write to."""

    folder: Path
    options: JudgeOptions
    candidate_sha256: str
    workload: Path
    candidate: Path | None
    """None: of a spare worker, which is told its candidate later (`admit`)."""
    private: Path
    """The reference's folder."""
    protect: tuple[int, ...]
    """Processes that the candidate may neither read nor signal: this one, the reference's."""
    unconfinable: str = ""
    """Why the workload cannot be loaded in a confined process; then only the supervisor is left."""
    report: Report | None = field(default=None, init=False)
    left: int = field(default=0, init=False)
    """Processes that the supervisor could not end."""

    def variables(self, status_fd: int) -> dict[str, str]:
        """Environment of the worker: the plan, temporary files in its own folder, the compilers' caches; {} where it starts as it is.

        status_fd: the end of a pipe that the worker and its supervisor write to.
        """
        if not supported() or not self.options.confine:
            return {}
        plan = {"status_fd": status_fd, "confine": not self.unconfinable, "protect": list(self.protect),
                "memory_bytes": memory_limit_bytes(self.options), "processes": self.options.process_limit, "file_bytes": MAX_FILE_BYTES,
                "log_bytes": MAX_LOG_BYTES}
        if self.unconfinable:
            return {VARIABLE: json.dumps(plan)}
        temporary = Path(tempfile.gettempdir())
        own = [self.workload] if self.candidate is None else [self.candidate, self.workload]
        caches, variables = self._caches()
        plan |= {"write": [str(path) for path in (self.folder, *caches)],
                 "hidden": [str(path) for path in temporary.glob(f"{PREFIX}reference-*") if path.is_dir()],
                 "not_writable": [str(path) for path in (temporary, *own, Path(__file__), Path.cwd())],
                 "readable": [str(path) for path in own], "not_readable": [str(self.private / CANARY)]}
        if self.options.device != "cpu" and Path("/dev/nvidiactl").exists():
            variables["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # its pool of compile workers fails when confined (H200, torch 2.11)
        return {VARIABLE: json.dumps(plan), **variables}

    def take(self, line: bytes) -> str:
        """A line that came over the status pipe: the worker's report (the first), or why the supervisor ended it (returned)."""
        try:
            if self.report is None:
                self.report = Report.model_validate_json(line)
                return ""
            told = json.loads(line)
            self.left = int(told.get("left", 0))
            return str(told.get("ended", ""))[:200]
        except (ValidationError, ValueError, AttributeError, TypeError):
            return ""

    def admit(self, candidate: Path, sha256: str, *, held: bool, detail: str) -> None:
        """A spare worker's candidate, and what its try to write that file came to: part of what was tried at the start."""
        self.candidate, self.candidate_sha256 = candidate, sha256
        if not held and self.report is not None:
            checks = [check.model_copy(update={"held": False, "detail": detail}) if check.name == WRITING else check
                      for check in self.report.checks]
            self.report = self.report.model_copy(update={"checks": checks})

    def confines(self) -> bool:
        """Whether the worker is to confine itself (and is not only watched, or as it is)."""
        return supported() and self.options.confine and not self.unconfinable

    def separation(self, *, timed: bool, hashed: bool) -> Separation:
        """The tier by what was really in force. timed: it states times; hashed: no file changed."""
        checks = {check.name: check for check in self.report.checks} if self.report is not None else {}
        found = [Mechanism(name=name, held=check.held, detail=check.detail) for name, check in checks.items()]
        if self.left:
            found = [item for item in found if item.name != "nothing left running"]
            found.append(Mechanism(name="nothing left running", held=False, detail=f"{self.left} processes could not be ended"))
        own = self.options.compile_cache == "own"
        found += [
            Mechanism(name="separate processes", held=True, detail="of reference, candidate and judge"),
            Mechanism(name="sealed replies", held=True, detail="a key that the candidate's code is not handed"),
            Mechanism(name="files hashed before and after", held=hashed, detail="workload, candidate and the judge's own"),
            Mechanism(name="timing audited", held=True,
                      detail="by a second clock, and an output of the timed calls checked" if timed else "no time is stated"),
            Mechanism(name="compile caches of its own", held=own and bool(checks) and not self.unconfinable,
                      detail="for this candidate alone" if own else "it writes to the user's, which later programs load from")]
        named = {mechanism.name for mechanism in found}
        found += [Mechanism(name=name, held=False, detail=self._why_not()) for name in sorted(HOSTILE - named)]
        held = {mechanism.name for mechanism in found if mechanism.held}
        tier: Tier = "hostile" if held >= HOSTILE else "known exploit" if held >= KNOWN_EXPLOIT else "honest mistake"
        return Separation(tier=tier, held=tuple(item for item in found if item.held),
                          missing=tuple(item for item in found if not item.held))

    def _why_not(self) -> str:
        if not self.options.confine:
            return "not asked for"
        if not supported():
            return f"not on {sys.platform}"
        return self.unconfinable or "the worker ended before it could report"

    def _caches(self) -> tuple[list[Path], dict[str, str]]:
        """Folders of compiled code, made, and the variables that lead compilers there."""
        scratch = self.folder / "t"  # short: a socket's path may have 107 characters
        scratch.mkdir()
        usual, triton = cache_folders({name: value for name, value in os.environ.items() if name != "TORCHINDUCTOR_CACHE_DIR"})
        inductor = cache_folders(os.environ)[0]
        variables = {"TMPDIR": scratch, "TORCHINDUCTOR_CACHE_DIR": inductor, "TRITON_CACHE_DIR": triton}
        folders = [usual, inductor, triton]
        if self.options.compile_cache == "own":
            own = self._own_cache()
            _lend_headers(usual / HEADERS, own / "temporary" / HEADERS)
            variables |= {name: own / folder for name, folder in CACHES.items()}
            folders = [own]
        for path in (*folders, *variables.values()):
            path.mkdir(parents=True, exist_ok=True)
        (scratch / usual.name).symlink_to(usual if self.options.compile_cache == "user" else folders[0] / "temporary")
        return folders, {name: str(path) for name, path in variables.items()}

    def _own_cache(self) -> Path:
        """Kept for the next judgement of the same file where there is a place for it."""
        try:
            folder = _judged_caches() / self.candidate_sha256[:32]
            folder.mkdir(parents=True, exist_ok=True)
            os.utime(folder)
        except (OSError, RuntimeError):  # RuntimeError: no home folder
            return self.folder / "caches"
        return folder


def supported() -> bool:
    """Whether there is anything to confine with."""
    return sys.platform == "linux"


def memory_limit_bytes(options: JudgeOptions) -> int:
    """What the candidate and all it starts may use: as asked for, else 80% of what is available now to this control group."""
    if options.memory_limit_bytes is not None:
        return options.memory_limit_bytes
    return max(LEAST_MEMORY_BYTES, int(SHARE_OF_MEMORY * available_bytes()))


def available_bytes(proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")) -> int:
    """Memory that can be had without swapping: the machine's, or what the control group (v2, v1) has left."""
    found = [2**63]
    with contextlib.suppress(OSError, ValueError):
        line = re.search(r"^MemAvailable:\s+(\d+) kB", (proc / "meminfo").read_text(), re.MULTILINE)
        found += [int(line[1]) * 1024] if line else []
    for limit, used in (("memory.max", "memory.current"), ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes")):
        with contextlib.suppress(OSError, ValueError):  # ValueError: "max"
            found.append(int((groups / limit).read_text()) - int((groups / used).read_text()))
    return max(0, min(found))


def own_files_sha256() -> str:
    """One digest over the judge's own source files."""
    package = Path(__file__).resolve().parents[1]
    digest = hashlib.sha256()
    for file in sorted(file for folder in OWN_FOLDERS for file in (package / folder).rglob("*.py")):
        with contextlib.suppress(OSError):
            digest.update(str(file).encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def prune_caches() -> None:
    """Keep the compiled code of the latest candidates only."""
    with contextlib.suppress(OSError, RuntimeError):
        kept_bytes = 0
        for index, folder in enumerate(sorted(_judged_caches().iterdir(), key=lambda path: path.lstat().st_mtime, reverse=True)):
            kept_bytes += sum(file.lstat().st_size for file in folder.rglob("*"))
            if index >= KEPT_CACHES or kept_bytes > KEPT_CACHE_BYTES:
                shutil.rmtree(folder, ignore_errors=True)


def _lend_headers(usual: Path, own: Path) -> None:
    """Links to the user's precompiled C++ headers, which take Inductor 10 s and more to make; it keeps them by their content.

    A candidate can read what a link leads to, and replace the link alone.
    """
    own.mkdir(parents=True, exist_ok=True)
    for file in usual.glob("*.h*") if usual.is_dir() else ():
        link = own / file.name
        if file.with_name(f"{file.name.partition('.')[0]}.h.gch").is_file() and not os.path.lexists(link):
            link.symlink_to(file)


def _judged_caches() -> Path:
    return cache_dir().absolute() / "judged"

"""A judgement in one file (`--bundle FILE.tar.xz`): what another machine needs to judge it again, and nothing else of this one."""

from __future__ import annotations

import hashlib
import importlib
import io
import json
import re
import sys
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from .. import __version__
from ..model.base import Record
from ..model.errors import BadInput, MachineLacks, one_line
from ..model.files import write_bytes_atomic
from ..model.verdict import ACCEPTABLE, Verdict
from ..model.workload import VersionSource, WorkloadRef
from .options import JudgeOptions
from .scrub import Scrubber
from .sources import MAX_FILES, MAX_TOTAL_BYTES, Sources
from .untrusted import open_regular

FORMAT = "kernelwright-bundle"
BUNDLE_VERSION = 2
"""2 where a version lies in a file of its own, which readers of 1 would not look for; else 1."""
SUFFIX = ".tar.xz"
XZ = b"\xfd7zXZ\0"
"""How every xz file begins (the .xz file format, section 2.1.1.1)."""
MAX_PACKED_BYTES = 64 * 2**20
MAX_UNPACKED_BYTES = MAX_TOTAL_BYTES + 16 * 2**20
"""What collects sources stops before; headers and the verdict come besides."""
MAX_DECODER_BYTES = 256 * 2**20
_MEMBER = re.compile(r"(?:bundle\.json|verdict\.json|(?:code|workload|candidate|version|import\d{1,2})/(?:[^/\0]+/)*[^/\0]+)")
_FOLDER = re.compile(r"(?:code|workload|candidate|version|import\d{1,2})(?:/(?!\.\.?(?:/|$))[^/\0\\]+)*")
_MACHINES_OWN = ("python", "device", "timeout_s", "lock", "keep_dir", "seed")
"""Options that belong to a machine, or stand elsewhere in the bundle."""
_TAKEN_OVER = ("precision", "rounds", "max_timing_s", "alpha", "timing")
"""Options that are judged by again. No other: whoever made a bundle must not be able to turn off a check, or what confines its code (nor to
ask for compute-sanitizer, whose process is not confined)."""
_FIX = "make it again with judge.py WORKLOAD CANDIDATE.py --bundle FILE.tar.xz"


class Contents(BaseModel):
    """`bundle.json`. Later versions may say more."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    format: str
    bundle_version: int
    kernelwright_version: str
    workload: str
    """Member name."""
    candidate: str
    name: str
    version: str | None
    params: dict[str, str]
    source: str | None = None
    """Member name of the file that holds the version, where that is not the workload's own."""
    function: str | None = None
    import_from: tuple[str, ...] = Field(default=(), max_length=100)
    """Folders of the bundle that its files import from."""
    options: dict[str, Any]
    seed: int = Field(ge=0, lt=2**48)
    files: dict[str, str]
    """Member name -> sha256."""


class Bundled(BaseModel):
    """What is read of the bundled verdict.json: it may be another version's."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    verdict: str
    speedup: float | None = None
    interval: tuple[float, float] | None = None
    device_name: str = ""
    torch_version: str = ""
    workload_sha256: str = ""
    candidate_sha256: str = ""


@dataclass(frozen=True)
class Bundle:
    """A bundle as it was read, every digest checked."""

    path: Path
    contents: Contents
    verdict: Bundled
    files: Mapping[str, bytes]

    def announce(self) -> str:
        """Whose code is about to run, in one line."""
        made, files = self.verdict, len(self.files)
        digests = ", ".join(f"{name} sha256 {self.contents.files[name]}"
                            for name in dict.fromkeys((self.contents.workload, self.contents.source, self.contents.candidate)) if name)
        return one_line(f"about to run code from {self.path.name} ({files} {'file' if files == 1 else 'files'}): {digests}; judged "
                        f"{made.verdict} on {made.device_name or 'an unknown device'} with torch {made.torch_version or 'n/a'} by "
                        f"kernelwright {self.contents.kernelwright_version}")

    def extract(self, folder: Path) -> tuple[WorkloadRef, Path]:
        """Write the files below `folder`: the workload and the candidate to judge. Raises NotWritable."""
        for name, data in self.files.items():
            write_bytes_atomic(folder / name, data)
        contents = self.contents
        source = VersionSource(path=(folder / contents.source).absolute(), function=contents.function) if contents.source else None
        workload = WorkloadRef(path=(folder / contents.workload).absolute(), name=contents.name, version=contents.version, source=source,
                               params=contents.params, import_from=tuple((folder / name).absolute() for name in contents.import_from))
        return workload, (folder / contents.candidate).absolute()

    def options(self, **machine: Any) -> JudgeOptions:
        """What it was judged by (_TAKEN_OVER), `machine` (device, python, ...), and the defaults for all else."""
        known = {name: value for name, value in self.contents.options.items() if name in _TAKEN_OVER}
        try:
            return JudgeOptions.model_validate({**known, "seed": self.contents.seed, **machine})
        except ValidationError as error:
            raise _broken(self.path, f"bundle.json has options that can't be ({error.errors()[0]['msg']})") from error


class Against(Record):
    """A new verdict beside the bundled one."""

    bundled_verdict: str
    same_verdict: bool
    """By name on the same device; on another one: both acceptable, or both the same kind of unacceptable."""
    same_device: bool
    same_torch: bool
    intervals_overlap: bool | None = None
    """None: another device, or one of the two has no interval."""
    words: str


def write_bundle(path: Path, sources: Sources, workload: WorkloadRef, options: JudgeOptions, verdict: Verdict) -> Path:
    """Pack a judgement. The same verdict gives the same bytes. Raises BadInput changed_meanwhile, NotWritable."""
    files = sources.files
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    for name, judged in ((sources.workload, verdict.workload_sha256), (sources.candidate, verdict.candidate_sha256)):
        if judged and digests[name] != judged:
            raise BadInput("changed_meanwhile", f"{name} was changed between its reading and its judging, so no bundle was written",
                           where=str(path), fix="judge it again")
    scrub = Scrubber(sources.folders)
    own = {name: value for name, value in options.model_dump(mode="json").items() if name not in _MACHINES_OWN}
    environment = {**verdict.environment, "device_name": verdict.device_name, "torch_version": verdict.torch_version}
    elsewhere = _of_version(sources, workload)
    contents = {"format": FORMAT, "bundle_version": BUNDLE_VERSION if elsewhere else 1, "kernelwright_version": __version__,
                "workload": sources.workload, "candidate": sources.candidate, "name": scrub.text(workload.name),
                "version": workload.version,
                "params": scrub.document(workload.params), **elsewhere, "options": own, "seed": verdict.seed, "environment": environment,
                "files": digests}
    said = {**scrub.document(verdict.model_dump(mode="json")), "workload": sources.workload, "candidate": sources.candidate}
    members = {"bundle.json": _json(contents), "verdict.json": _json(said), **files}
    return write_bytes_atomic(path, _lzma().compress(_tar(members), preset=6))


def _of_version(sources: Sources, workload: WorkloadRef) -> dict[str, Any]:
    """Nothing where one file holds the workload: such bundles are what they were before there were others."""
    if sources.source is None and not sources.import_from:
        return {}
    function = workload.source.function if workload.source is not None else None
    return {"source": sources.source, "function": function, "import_from": sources.import_from}


def read_bundle(path: Path) -> Bundle:
    """Open a bundle that may come from anyone. Raises BadInput not_a_bundle, broken_bundle, bundle_too_large, bundle_too_new."""
    members = _members(path, _unpacked(path))
    if "bundle.json" not in members or "verdict.json" not in members:
        raise BadInput("not_a_bundle", "holds no bundle.json and verdict.json, so it is another archive", where=str(path), fix=_FIX)
    found = _parsed(path, members)
    if found.get("format") != FORMAT:
        raise BadInput("not_a_bundle", f"bundle.json does not say {FORMAT}", where=str(path), fix=_FIX)
    version = found.get("bundle_version")
    if isinstance(version, int) and version > BUNDLE_VERSION:
        raise BadInput("bundle_too_new", f"is of bundle version {version}, and this kernelwright reads up to {BUNDLE_VERSION}",
                       where=str(path), fix="update kernelwright")
    try:
        contents = Contents.model_validate(found)
        verdict = Bundled.model_validate_json(members.pop("verdict.json"))
    except (ValidationError, RecursionError) as error:
        where = ".".join(map(str, error.errors()[0]["loc"])) if isinstance(error, ValidationError) else "nested too deeply"
        raise _broken(path, f"bundle.json or verdict.json lacks what belongs there ({where[:100]})") from error
    members.pop("bundle.json")
    named = {contents.workload, contents.candidate, *([contents.source] if contents.source is not None else [])}
    if members.keys() != contents.files.keys() or not named <= members.keys():
        raise _broken(path, "its files are not those that bundle.json lists")
    if any(_FOLDER.fullmatch(name) is None for name in contents.import_from):
        raise _broken(path, "it imports from folders that no bundle of ours has")
    for name, data in members.items():
        if hashlib.sha256(data).hexdigest() != contents.files[name]:
            raise _broken(path, f"{name} is not the file that bundle.json lists (its sha256 differs)")
    return Bundle(path, contents, verdict, members)


def is_bundle(path: Path) -> bool:
    """Whether a file named on the command line is meant as a bundle."""
    return path.name.endswith(SUFFIX)


def against(bundled: Bundled, new: Verdict) -> Against:
    """How a new verdict compares with the bundled one. On another device only correctness is compared: its timing is new."""
    same_device, same_torch = bundled.device_name == new.device_name, bundled.torch_version == new.torch_version
    right = bundled.verdict in ACCEPTABLE, new.verdict in ACCEPTABLE
    same = bundled.verdict == new.verdict or (not same_device and all(right))
    overlap = None
    if same_device and bundled.interval is not None and new.interval is not None:
        overlap = bundled.interval[0] <= new.interval[1] and new.interval[0] <= bundled.interval[1]
    said = [f"bundled {bundled.verdict}, now {new.verdict}"]
    if not same_device:
        said.append(f"another device (then {bundled.device_name or 'unknown'}): only correctness is compared, and it "
                    f"{'agrees' if right[0] == right[1] else 'DIFFERS'}; the timing is new")
    elif overlap is not None:
        said.append(f"the intervals of the speed-up {'overlap' if overlap else 'DO NOT overlap'} ({_interval(bundled.interval)} then, "
                    f"{_interval(new.interval)} now)")
    if not same_torch:
        said.append(f"torch was {bundled.torch_version or 'unknown'}, is {new.torch_version}")
    return Against(bundled_verdict=bundled.verdict, same_verdict=same, same_device=same_device, same_torch=same_torch,
                   intervals_overlap=overlap, words=one_line("; ".join(said)))


def _lzma() -> ModuleType:
    """The standard library's module, which a Python that was built without liblzma lacks."""
    try:
        return importlib.import_module("lzma")
    except ImportError as error:
        raise MachineLacks("no_lzma", f"this Python was built without lzma ({error})", where=sys.executable,
                           fix="use a Python that has it: install liblzma's headers (liblzma-dev, xz-devel) and build it again") from error


def _interval(value: tuple[float, float] | None) -> str:
    return f"{value[0]:.3f} to {value[1]:.3f}" if value else "none"


def _json(document: Any) -> bytes:
    return (json.dumps(document, indent=1, sort_keys=True, allow_nan=False) + "\n").encode()


def _tar(members: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, data in sorted(members.items()):
            member = tarfile.TarInfo(name)  # its defaults: no owner, no time, mode 644
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def _unpacked(path: Path) -> bytes:
    try:
        with open_regular(path, follow=True) as file:
            packed = file.read(MAX_PACKED_BYTES + 1)
    except FileNotFoundError as error:
        raise BadInput("no_such_file", "no such file", where=str(path.absolute()), fix="give the path of a bundle") from error
    except OSError as error:
        raise BadInput("unreadable", f"can't be read: {error.strerror or error}", where=str(path), fix="make it readable") from error
    if len(packed) > MAX_PACKED_BYTES:
        raise _too_large(path, f"is larger than {MAX_PACKED_BYTES >> 20} MiB")
    if not packed.startswith(XZ):
        raise BadInput("not_a_bundle", "is no xz archive", where=str(path), fix=_FIX)
    lzma = _lzma()
    decoder = lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=MAX_DECODER_BYTES)
    try:
        data: bytes = decoder.decompress(packed, max_length=MAX_UNPACKED_BYTES + 1)
    except lzma.LZMAError as error:
        if "Memory usage limit" in str(error):
            raise _too_large(path, f"needs more than {MAX_DECODER_BYTES >> 20} MiB to unpack") from error
        raise BadInput("not_a_bundle", "is a damaged xz archive", where=str(path), fix=_FIX) from error
    if len(data) > MAX_UNPACKED_BYTES:
        raise _too_large(path, f"unpacks to more than {MAX_UNPACKED_BYTES >> 20} MiB")
    if not decoder.eof:
        raise _broken(path, "is cut off: its end is missing")
    return data


def _members(path: Path, data: bytes) -> dict[str, bytes]:
    """Regular files alone, under the names that a bundle may have; nothing is written."""
    members: dict[str, bytes] = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
            for entry in archive:
                _check(path, entry, members)
                file = archive.extractfile(entry)
                members[entry.name] = file.read() if file is not None else b""
                if len(members[entry.name]) != entry.size:
                    raise _broken(path, "is cut off: its end is missing")
    except (tarfile.TarError, EOFError, ValueError, OverflowError, RecursionError) as error:
        raise BadInput("not_a_bundle", "holds no tar archive, or a damaged one", where=str(path), fix=_FIX) from error
    return members


def _check(path: Path, entry: tarfile.TarInfo, members: Mapping[str, bytes]) -> None:
    if len(members) >= MAX_FILES + 2 or entry.size > MAX_UNPACKED_BYTES or entry.issparse():
        raise _too_large(path, f"holds more than {MAX_FILES} files, or one larger than {MAX_UNPACKED_BYTES >> 20} MiB")
    parts = entry.name.split("/")
    if not entry.isreg() or not _MEMBER.fullmatch(entry.name) or ".." in parts or "." in parts or "\\" in entry.name:
        raise BadInput("unsafe_bundle", f"holds {entry.name[:100]!r}, which no bundle of ours has: a link, a folder, or a path that leads "
                       "elsewhere", where=str(path), fix="do not trust it; ask for it again from whoever made it")
    if entry.name in members:
        raise BadInput("unsafe_bundle", f"holds {entry.name[:100]!r} twice", where=str(path),
                       fix="do not trust it; ask for it again from whoever made it")


def _parsed(path: Path, members: Mapping[str, bytes]) -> dict[str, Any]:
    try:
        found = json.loads(members["bundle.json"])
    except (ValueError, RecursionError) as error:
        raise _broken(path, "bundle.json is no JSON") from error
    return found if isinstance(found, dict) else {}


def _broken(path: Path, message: str) -> BadInput:
    return BadInput("broken_bundle", message, where=str(path), fix="copy it again, or " + _FIX)


def _too_large(path: Path, message: str) -> BadInput:
    return BadInput("bundle_too_large", message, where=str(path), fix="a bundle holds source files alone; this is something else")

"""Mode nsys on recordings that exist: `profile_kernel FILE`, of Nsight Systems (.nsys-rep, .sqlite) or torch.profiler (.json, .json.gz).

Needs no GPU and no interpreter that has torch; an .nsys-rep needs nsys for its export, unless the .sqlite lies beside it.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from .. import __version__
from ..capture.nsight import find_nsys
from ..capture.nsys import EXPORT_LOG, export_sqlite
from ..capture.nsys_secrets import scrub_environments
from ..capture.system_view import real_system, run_command
from ..diagnose import diagnose
from ..model.base import Evidence
from ..model.capture import ProbeResult
from ..model.errors import BadInput, KernelwrightError, MachineLacks, NotWritable, one_line
from ..model.files import PARTIAL, leave_error
from ..model.profile import SCHEMA_VERSION, Bottleneck, CaptureMetadata, ClockReading, Profile
from ..model.recording import Recording
from ..model.saying import Say, silent
from ..model.structure import FoundIterations
from ..model.trace import Trace
from ..readers.cache import cached, cached_kineto
from ..readers.kineto import read_kineto
from ..readers.lines import UserStack, read_lines
from ..readers.nsys import read_nsys
from ..readers.sniff import trace_kind
from ..roofline import with_roofline, work_summary
from ..timeline.head import head_of_trace
from ..timeline.iterations import with_found_steps
from .beside import NO_ROOF, own_result, roof_of_operators, roof_of_result, timing_of
from .counters import VERSION_TIMEOUT_S
from .forms import hide_secrets
from .recorded import Recorded
from .script import heaviest_dtype
from .source import is_file
from .stored import analysis_folder, safe_name
from .timeline_part import with_timeline
from .trace_file import located

REPORT, DATABASE = ".nsys-rep", ".sqlite"
SUFFIXES = (REPORT, DATABASE, ".json", ".json.gz")
NA = "n/a"
ELSEWHERE = "not known: recorded elsewhere"
MOST_LAUNCHES = 20_000
"""Launches that a document lists one by one; of a larger recording its beginning is listed, and the engine still looks at all of it."""
MOST_COPIED_BYTES = 256 << 20
FIX = "name an .nsys-rep or its .sqlite export, or a Chrome trace of torch.profiler (.json, .json.gz)"
NSYS_READER = "nsys 1"
"""Goes up when the reader of exports gives something else for the same file, so that no older entry of the cache is used."""
_STACKS, _LINES = "trace_stacks.json.gz", "lines.json.gz"
"""Beside a recording that kernelwright made."""


@dataclass(frozen=True)
class RecordingRun:
    """A finished analysis: the document, what was read, where it goes, and params.json."""

    profile: Profile
    trace: Trace
    out_dir: Path
    params: Mapping[str, Any]


def is_recording_target(target: str, mode: str | None) -> bool:
    """Whether TARGET names a recording: by its suffix; with --mode nsys also by what the file holds."""
    if target.lower().endswith(SUFFIXES):
        return True
    if mode != "nsys" or target.endswith(".py") or not is_file(Path(target)):
        return False
    with located(Path(target)):
        return trace_kind(Path(target)) is not None


def analyse_recording(target: Path, out_dir: Path | None, *, name: str | None = None, device_name: str | None = None,
                      steps_from: str | None = None, nsys_executable: str | None = None, keep_report: bool = False,
                      command: Sequence[str] = (), say: Say = silent) -> RecordingRun:
    """Analyse a recording made elsewhere. The caller writes the documents (report layer).

    steps_from: the range that is a step. Raises BadInput, MachineLacks (an .nsys-rep without nsys), NotWritable; once a folder was made, a
    failure leaves error.json in it.
    """
    kind = _kind(target)
    folder = analysis_folder("nsys", name or recording_name(target), out_dir)
    try:
        recorded = _read(target, kind, folder / "raw", steps_from, nsys_executable, keep_report, say)
        profile = _profile(recorded, name or recording_name(target), device_name, own_result(target, recorded.trace_whole))
    except (KernelwrightError, OSError) as error:
        fault = error if isinstance(error, KernelwrightError) else NotWritable(error, folder)
        leave_error(folder, fault)
        raise fault from error
    return RecordingRun(profile, recorded.trace_whole, folder, _params(profile, target, folder, command))


def recording_name(target: Path) -> str:
    """The file's name without what says of which kind it is."""
    stem = target.absolute().name
    for suffix in (REPORT, DATABASE, ".gz", ".json", ".pt.trace", ".trace"):
        stem = stem.removesuffix(suffix)
    return stem[:500] or "recording"


def _kind(target: Path) -> str:
    where = str(target.absolute())
    if not os.path.lexists(target):
        raise BadInput("no_such_recording", "there is no such file", where=where, fix=FIX)
    if not is_file(target):
        raise BadInput("no_such_recording", "is no regular file", where=where, fix=FIX)
    with located(target):
        kind = trace_kind(target)
    if kind is None:
        raise BadInput("not_a_recording", "is no recording of Nsight Systems or torch.profiler", where=where, fix=FIX)
    return kind


def _read(target: Path, kind: str, raw: Path, steps_from: str | None, executable: str | None, keep_report: bool,
          say: Say) -> Recorded:
    say(f"reading {target.name}")
    if kind == "kineto":
        with located(target):
            trace = cached_kineto(target, need_steps=False, steps_range=steps_from)
        file = _copied(target, raw)
        stacks = _beside(target, _STACKS)
        recorded = Recorded(trace, _read_stacks(stacks), (), warnings=() if file else (_left(target),))
        tool = "torch.profiler"
    else:
        recorded, file, tool = _of_nsys(target, kind, raw, steps_from, executable, keep_report, say)
    if recorded.stacks is not None:
        recorded = dataclasses.replace(recorded, lines=_lines(target))
    trace, found = recorded.trace, None
    if trace.steps_from == "whole":
        trace, found = with_found_steps(trace)
    head = head_of_trace(trace, MOST_LAUNCHES)
    recording = Recording(recorder=trace.recorder, tool=tool, file=file, steps_from=trace.steps_from, rank=trace.rank,
                          world_size=trace.world_size)
    return dataclasses.replace(recorded, trace=head, whole=None if head is trace else trace, recording=recording, found=found)


def _beside(target: Path, name: str) -> Path | None:
    file = target.parent / name
    return file if file != target and is_file(file) else None


def _read_stacks(file: Path | None) -> Trace | None:
    try:
        return read_kineto(file) if file is not None else None
    except BadInput:
        return None


def _lines(target: Path) -> tuple[UserStack, ...]:
    file = _beside(target, _LINES)
    try:
        return read_lines(file) if file is not None else ()
    except BadInput:
        return ()


def _left(target: Path) -> str:
    return f"{target.name} was left where it lies: it is larger than {MOST_COPIED_BYTES >> 20} MiB"


def _of_nsys(target: Path, kind: str, raw: Path, steps_from: str | None, executable: str | None, keep_report: bool,
             say: Say) -> tuple[Recorded, str | None, str]:
    """(what was read, the recording's place in raw/, who recorded). What is in raw/ holds no environments of processes."""
    if kind == "nsys-sqlite":
        main, second = _read_export(target, steps_from)
        file, warnings = _scrubbed_copy(target, raw)
        return Recorded(main, second, (), warnings=warnings), file, "Nsight Systems"
    exported = raw / f"{safe_name(target.name.removesuffix(REPORT))}{DATABASE}"
    beside = _export_beside(target)
    if beside is not None and _is_same(beside, exported):
        main, second = _read_export(exported, steps_from)
        return Recorded(main, second, (), warnings=(_untouched(exported),)), f"raw/{exported.name}", "Nsight Systems"
    with _hidden(exported) as made:
        version = _export(target, beside, made, raw / EXPORT_LOG, executable, say)
        scrubbed = scrub_environments(made)
    main, second = _read_export(exported, steps_from)
    tool = f"Nsight Systems {version or ''}".strip()
    if scrubbed.foreign and not keep_report:
        return Recorded(main, second, (), warnings=(
            f"the report holds the environments of {scrubbed.foreign} processes: raw/ has only its export, without them "
            "(--keep-nsys-report copies it too)",)), f"raw/{exported.name}", tool
    copied = _copied(target, raw)
    return Recorded(main, second, (), warnings=() if copied else (_left(target),)), copied or f"raw/{exported.name}", tool


def _read_export(database: Path, steps_from: str | None) -> tuple[Trace, Trace | None]:
    """read_nsys, by way of the cache of large traces."""
    version = f"{NSYS_READER} of kernelwright {__version__} {steps_from!r}"
    with located(database):
        main, second = cached(database, lambda: read_nsys(database, steps_range=steps_from), version=version)
    assert main is not None
    return main, second


def _scrubbed_copy(target: Path, raw: Path) -> tuple[str | None, tuple[str, ...]]:
    """(place in raw/ of a copy without environments, warnings)."""
    copy = raw / f"{safe_name(target.name.removesuffix(DATABASE))}{DATABASE}"
    if _is_same(target, copy):
        return f"raw/{copy.name}", (_untouched(target),)
    if target.stat().st_size > MOST_COPIED_BYTES:
        return None, (_left(target),)
    try:
        with _hidden(copy) as made:
            shutil.copyfile(target, made)
            scrub_environments(made)
    except BadInput as error:
        copy.unlink(missing_ok=True)  # an earlier run's
        return None, (f"{target.name} was not copied into raw/: environments of processes can't be taken out of it ({error.message})",)
    return f"raw/{copy.name}", ()


def _is_same(file: Path, place: Path) -> bool:
    return place.exists() and os.path.samefile(file, place)


def _untouched(file: Path) -> str:
    return f"{file.name} already lies in raw/ of the results: it is left as it is, with any environments of processes that it holds"


@contextmanager
def _hidden(place: Path) -> Iterator[Path]:
    """A file's place of the same name in a hidden folder beside it; it moves to its own place when all went well, else it goes."""
    folder = Path(tempfile.mkdtemp(prefix=f".{place.name[:40]}.", suffix=PARTIAL, dir=place.parent))
    try:
        yield folder / place.name
        (folder / place.name).chmod(0o644)
        os.replace(folder / place.name, place)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _export_beside(target: Path) -> Path | None:
    """The report's export that lies beside it, where it is no older."""
    beside = target.with_name(target.name.removesuffix(REPORT) + DATABASE)
    if beside == target or not is_file(beside) or beside.stat().st_mtime < target.stat().st_mtime:
        return None
    with located(beside):
        return beside if trace_kind(beside) == "nsys-sqlite" else None


def _export(target: Path, beside: Path | None, out: Path, log: Path, executable: str | None, say: Say) -> str | None:
    """The export goes to `out`; nsys's version, None where it is a copy. Raises MachineLacks where there is neither nsys nor an export."""
    if beside is not None:
        shutil.copyfile(beside, out)
        return None
    tool = find_nsys(dataclasses.replace(real_system(), run=partial(run_command, timeout_s=VERSION_TIMEOUT_S)), executable)
    if not tool.works:
        fix = tool.fix or tool.advice
        raise MachineLacks("no_nsys", f"an {REPORT} file is read through nsys, and there is none: {one_line(tool.problem)}",
                           where=str(target.absolute()),
                           fix=f"export it where nsys is (nsys export --type sqlite {target.name}) and name the .sqlite file; or {fix}")
    say(f"exporting {target.name} with nsys {tool.version or ''}".rstrip())
    export_sqlite(tool, target.absolute(), out, log=log)
    return tool.version


def _copied(target: Path, raw: Path) -> str | None:
    place = raw / safe_name(target.name)
    return f"raw/{place.name}" if _copy(target, place) else None


def _copy(file: Path, place: Path) -> bool:
    """Copy it whole or not at all; False where it is too large."""
    if file.stat().st_size > MOST_COPIED_BYTES:
        return False
    if _is_same(file, place):
        return True
    handle, temporary = tempfile.mkstemp(prefix=f".{place.name[:40]}.", suffix=PARTIAL, dir=place.parent)
    os.close(handle)
    try:
        shutil.copyfile(file, temporary)
        Path(temporary).chmod(0o644)
        os.replace(temporary, place)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return True


def _profile(recorded: Recorded, name: str, device_name: str | None, result: ProbeResult | None) -> Profile:
    trace = recorded.trace
    timing = timing_of(result) if recorded.whole is None else None  # idle time of all steps can't be scaled by that of the first ones
    ceilings = roof_of_result(result) if result is not None else NO_ROOF
    evidence: dict[str, Evidence] = {"duration": "timeline"} if timing is None else {"duration": "timeline", "timing": "events"}
    work = work_summary(result.work, timing, ceilings) if result is not None and result.work is not None and timing is not None else None
    if work is not None:
        evidence["work"] = "analytic"
    metadata = CaptureMetadata(
        model_name=name, mode="nsys", torch_version=NA, compile_mode=NA, device="cuda" if trace.is_cuda else "cpu",
        device_name=device_name or ", ".join(dict.fromkeys(trace.device_names)) or NA, capture_timestamp_utc=NA,
        kernelwright_version=__version__, dtype="", clocks=ClockReading(requested="none", locked=False, note=ELSEWHERE))
    draft = Profile(
        capture_metadata=metadata, bottleneck=Bottleneck(kind=None, root_cause=""), evidence=evidence, timing=timing, work=work,
        roofline=ceilings,
        warnings=(*_about_steps(trace, recorded.found), *_about_size(recorded)))
    whole = with_timeline(draft, recorded, roof_of=partial(roof_of_operators, trace=recorded.trace_whole)
                          if ceilings is NO_ROOF else None)
    facts = result.facts if result is not None else None
    metadata = metadata.model_copy(update={"dtype": (facts.dtype if facts is not None else "") or heaviest_dtype(whole.operators) or NA})
    return diagnose(with_roofline(whole.model_copy(update={"capture_metadata": metadata})))


def _about_steps(trace: Trace, found: FoundIterations | None) -> tuple[str, ...]:
    if found is None:
        return ()
    if trace.steps_from == "whole":
        why = f" ({found.note})" if found.note else ""
        return (f"no steps are marked and none were found{why}: the whole recording counts as one step (--steps-from RANGE names a range)",)
    out = f", {found.launches_left_out} launches are in none" if found.launches_left_out else ""
    return (f"no steps are marked: {found.count} were found by their repetition ({found.confidence} confidence){out}",)


def _about_size(recorded: Recorded) -> tuple[str, ...]:
    if recorded.whole is None:
        return ()
    return (f"{len(recorded.whole.device)} pieces of device work are too many to list: operators, stages and findings are of the first "
            f"{len(recorded.trace.device)}; busy and idle time, overlap, launches and what repeats are of all",)


def _params(profile: Profile, target: Path, folder: Path, command: Sequence[str]) -> dict[str, Any]:
    assert profile.recording is not None
    return {
        "kernel": profile.capture_metadata.model_name, "version": None, "mode": "nsys", "workload": str(target.absolute()),
        "parameters": {}, "inputs": [], "out_dir": str(folder), "device": {"device_name": profile.capture_metadata.device_name},
        "versions": {"kernelwright": __version__, "torch": None, "schema": SCHEMA_VERSION}, "interpreter": None,
        "clocks": profile.capture_metadata.clocks.model_dump(), "recording": profile.recording.model_dump(mode="json"),
        "command": hide_secrets(command),
    }

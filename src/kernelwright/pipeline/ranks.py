"""Several ranks: a script run once a rank, or a folder of recordings, to the finished comparison."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from .. import __version__
from ..capture.interpreter import Interpreter, find_interpreter
from ..capture.lock import device_lock
from ..capture.ranks import run_ranks
from ..model.capture import ProbeRequest, ProbeResult, ProbeWorkload
from ..model.errors import BadInput, KernelwrightError
from ..model.files import leave_error
from ..model.ranks import MOST_RANKS, RANKS_VERSION, Ranks
from ..model.saying import Say, own_lines, silent
from ..model.table import MemoryEvents
from ..model.trace import Trace
from ..model.workload import WorkloadRef
from ..readers.kineto import read_kineto
from ..timeline.ranks import compare_ranks
from .forms import hide_secrets, script_parameters
from .profile import ProfileOptions, check_file, clocks_of_run, fault_of, move_folder, working_folder
from .script import EARLY_EXIT, check_script, probe_script
from .trace_file import is_trace, read_trace

MODE = "nsys"
STEPS = 5
SKEWED_STEPS = 1
"""Recorded steps that are not compared: profilers do not start at one moment, so that in the first step ranks wait for one another's."""
_IN_NAME = re.compile(r"rank[-_. ]?(\d{1,6})(?!\d)", re.IGNORECASE)
_OTHER_RECORDING = re.compile(r"(?:^|[._-])stacks(?=[._-]|$)")


@dataclass(frozen=True)
class RanksRun:
    """A finished comparison, where its files are, and what goes into params.json."""

    ranks: Ranks
    name: str
    out_dir: Path
    recordings: tuple[Path, ...]
    """Rank by rank."""
    traces: dict[int, Trace]
    """By rank, without what `slim` leaves out."""
    params: dict[str, Any] = field(default_factory=dict)


def profile_ranks(workload: WorkloadRef, count: int, out_dir: Path | None, options: ProfileOptions, *, say: Say = silent) -> RanksRun:
    """Run a script as `count` ranks on this machine, each recorded by torch.profiler, and compare them. Recordings are in raw/rankN.

    Raises BadInput, MachineLacks, WorkloadFailed; a failed run leaves error.json and what it had.
    """
    check_file(workload)
    if workload.script is None:
        raise BadInput("ranks_of_workload", "--ranks runs scripts, and this file has an entry point of a workload",
                       where=str(workload.path), fix="add -- to run the file as a script, or leave --ranks out")
    check_script(workload, compile_mode=options.compile_mode, flush_l2=options.flush_l2, warmup=options.warmup,
                 steps_from=options.steps_from)
    interpreter = find_interpreter(options.python, workload.path, options.device, say)
    folder = working_folder(workload, MODE, out_dir)
    params = script_parameters(workload.script.argv)

    def capture() -> tuple[Ranks, tuple[Path, ...], dict[int, Trace], dict[str, Any]]:
        results, clocks = _capture(workload, count, folder, interpreter, options, say)
        files = tuple(folder / "raw" / f"rank{rank}" / str(result.trace_file) for rank, result in enumerate(results))
        traces = [(rank, slim(replace(read_kineto(file), rank=rank, world_size=count, source=f"rank{rank}/{file.name}")))
                  for rank, file in enumerate(files)]
        found = compare_ranks(traces, leave_out=SKEWED_STEPS)
        return found.model_copy(update={"warnings": found.warnings + _said(results)}), files, dict(traces), clocks

    found, files, traces, clocks = _guarded(
        capture, folder, lambda: folder if out_dir is not None else move_folder(folder, workload, MODE, params))
    final = folder if out_dir is not None else move_folder(folder, workload, MODE, params)
    return RanksRun(found, workload.name, final, tuple(final / file.relative_to(folder) for file in files), traces, {
        **_params(workload.name, workload.path, params, final, options), "clocks": clocks,
        "interpreter": {"path": str(interpreter.path), "source": interpreter.source},
        "versions": {"kernelwright": __version__, "torch": interpreter.torch_version, "schema": RANKS_VERSION},
        "script": {"arguments": hide_secrets(workload.script.argv), "steps_from": options.steps_from, "ranks": count,
                   "run_to_end": options.run_to_end}})


def compare_folder(folder: Path, out_dir: Path | None, options: ProfileOptions, *, name: str | None = None, say: Say = silent) -> RanksRun:
    """Compare the recordings in a folder, one a rank. Raises BadInput; leaves error.json."""
    files = rank_files(folder)
    reference = WorkloadRef(path=folder, name=name or folder.resolve().name or "ranks")
    target = working_folder(reference, MODE, out_dir)

    def capture() -> tuple[Ranks, tuple[Path, ...], dict[int, Trace]]:
        ranked = read_ranks(files, options.steps_from, say)
        own = all(trace.steps_from == "kernelwright" for _, trace, _ in ranked)
        found = compare_ranks([(rank, trace) for rank, trace, _ in ranked], leave_out=SKEWED_STEPS if own else 0)
        return found, tuple(file for _, _, file in ranked), {rank: trace for rank, trace, _ in ranked}

    found, ordered, traces = _guarded(capture, target, lambda: target if out_dir is not None else move_folder(target, reference, MODE, {}))
    final = target if out_dir is not None else move_folder(target, reference, MODE, {})
    return RanksRun(found, reference.name, final, tuple(file.resolve() for file in ordered), traces, {
        **_params(reference.name, folder.resolve(), {}, final, options),
        "versions": {"kernelwright": __version__, "torch": None, "schema": RANKS_VERSION}, "interpreter": None, "script": None})


def rank_files(folder: Path) -> tuple[Path, ...]:
    """The recordings in a folder, in its raw/, or in rankN folders in either; () where there are none. Raises BadInput for too many."""
    for place in (folder, folder / "raw"):
        for pattern in ("*", "rank*/*"):
            found = sorted(path for path in place.glob(pattern) if not _OTHER_RECORDING.search(path.name) and is_trace(path))
            if len(found) > MOST_RANKS:
                raise BadInput("too_many_ranks", f"holds {len(found)} recordings; at most {MOST_RANKS} are read", where=str(folder),
                               fix="name a folder with one recording a rank")
            if found:
                return tuple(found)
    return ()


def read_ranks(files: Sequence[Path], steps_range: str | None, say: Say = silent) -> list[tuple[int, Trace, Path]]:
    """(rank, recording, file) in rank order. The rank is what the recording says, else the number in "rankN" of its name or folder.

    Raises BadInput where that is not known or two have the same.
    """
    found: dict[int, tuple[Trace, Path]] = {}
    for number, file in enumerate(files):
        if number and number % 8 == 0:
            say(f"{number} of {len(files)} recordings read")
        trace = read_trace(file, steps_range)
        rank = trace.rank if trace.rank is not None else _rank_in(file)
        if rank is None or rank >= MOST_RANKS * 1024:
            raise BadInput("no_rank", "nothing says which rank this recording is of", where=str(file),
                           fix="name the files rank0.json, rank1.json, ... (torch.profiler writes the rank once the process group is up)")
        if rank in found:
            raise BadInput("same_rank", f"two recordings are of rank {rank}: {found[rank][1].name} and {file.name}", where=str(file.parent),
                           fix="keep one recording a rank in the folder")
        found[rank] = slim(replace(trace, source=file.name)), file
    return [(rank, *found[rank]) for rank in sorted(found)]


def slim(trace: Trace) -> Trace:
    """The trace without what the comparison does not look at: Python frames, lines, memory."""
    none = np.zeros(0, dtype=np.int64)
    return replace(trace, python=trace.python.take(none), lines=trace.lines.take(none), memory=MemoryEvents(*[none] * 8))


def _rank_in(file: Path) -> int | None:
    for name in (file.name, file.parent.name):
        if match := _IN_NAME.search(name):
            return int(match[1])
    return None


def _capture(workload: WorkloadRef, count: int, folder: Path, interpreter: Interpreter, options: ProfileOptions, say: Say
             ) -> tuple[list[ProbeResult], dict[str, Any]]:
    script = probe_script(workload, steps_from=options.steps_from, run_to_end=options.run_to_end)
    requests = [ProbeRequest(
        action="annotation", workload=ProbeWorkload(path=str(workload.path)), device=options.device, script=script, stacks=False,
        out_dir=str(folder / "raw" / f"rank{rank}"), warmup=options.warmup, steps=(options.steps or STEPS) + SKEWED_STEPS)
        for rank in range(count)]
    for earlier in (folder / "raw").glob("rank*/trace.json.gz"):
        earlier.unlink()
    say = own_lines(say)
    with device_lock(f"profile {workload.name}", say), clocks_of_run(options, interpreter, say) as clocks:
        if not options.run_to_end:
            say(EARLY_EXIT)
        say(f"profiling the script {workload.name} as {count} ranks with torch {interpreter.torch_version} from {interpreter.source}; "
            "the output shown is rank 0's")
        results = run_ranks(requests, interpreter, cwd=Path.cwd(), timeout_s=options.timeout_s, say=say,
                            stdout_to_stderr=options.stdout_to_stderr)
    return results, clocks.reading().model_dump()


def _said(results: Sequence[ProbeResult]) -> tuple[str, ...]:
    """The ranks' own warnings, each once."""
    by_text: dict[str, list[int]] = {}
    for rank, result in enumerate(results):
        for warning in dict.fromkeys(result.warnings):
            by_text.setdefault(warning, []).append(rank)
    return tuple(("all ranks" if len(ranks) == len(results) else f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks[:8]))}"
                  + (", ..." if len(ranks) > 8 else "")) + f": {text}" for text, ranks in by_text.items())


def _guarded(work: Callable[[], Any], folder: Path, final: Callable[[], Path]) -> Any:
    """What `work` returns; where it fails, error.json in the folder at its final place."""
    try:
        return work()
    except (KernelwrightError, OSError, KeyboardInterrupt) as error:
        place = final()
        fault = fault_of(error, place)
        fault.where, fault.fix = (text.replace(str(folder), str(place)) for text in (fault.where, fault.fix))
        leave_error(place, fault)
        if fault is not error and isinstance(error, OSError):
            raise fault from error
        raise


def _params(name: str, path: Path, params: dict[str, Any], folder: Path, options: ProfileOptions) -> dict[str, Any]:
    return {"kernel": name, "version": None, "mode": MODE, "workload": str(path), "parameters": params, "inputs": [],
            "out_dir": str(folder), "options": {"warmup": options.warmup, "steps": options.steps}, "command": hide_secrets(options.command)}

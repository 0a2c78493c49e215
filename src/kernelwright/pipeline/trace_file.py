"""Recordings of a timeline that were made elsewhere: told from other files by their contents, and read by whichever reader fits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..model.errors import BadInput, KernelwrightError
from ..model.trace import Trace
from ..readers.cache import cached_kineto
from ..readers.nsys import read_nsys
from ..readers.sniff import trace_kind
from .source import is_file

ENDINGS = (".json", ".json.gz", ".sqlite", ".nsys-rep")


@contextmanager
def located(path: Path) -> Iterator[None]:
    """Errors of the readers, which name their file alone, get its absolute path. Raises BadInput where memory does not suffice."""
    try:
        yield
    except MemoryError as error:
        raise BadInput("trace_too_large", "needs more memory than there is", where=str(path.absolute()),
                       fix="record fewer steps (--steps), or a shorter time") from error
    except KernelwrightError as error:
        for name in (str(path), path.name):
            rest = error.where[len(name):]
            if error.where.startswith(name) and (not rest or rest.startswith(", ")):
                error.where = f"{path.absolute()}{rest}"
                break
        raise


def is_trace(path: Path) -> bool:
    """Whether a file is a recording: by its ending, and a .json by its contents too. A missing file is none."""
    if not is_file(path) or not path.name.endswith(ENDINGS):
        return False
    with located(path):
        return not path.name.endswith((".json", ".json.gz")) or trace_kind(path) == "kineto"


def read_trace(path: Path, steps_range: str | None = None) -> Trace:
    """The recording in a file; of a .nsys-rep the .sqlite that lies beside it and is no older.

    steps_range: name of the range that is a step. Raises BadInput where it can't be read, and for a .nsys-rep without its export.
    """
    with located(path):
        kind = trace_kind(path)
    if kind == "nsys-rep":
        beside = path.with_suffix(".sqlite")
        if not is_file(beside):
            raise BadInput("not_exported", "a report of Nsight Systems must be exported first", where=str(path),
                           fix=f"nsys export --type sqlite --output {beside} {path}")
        if beside.stat().st_mtime < path.stat().st_mtime:
            raise BadInput("not_exported", f"the export beside it ({beside.name}) is older than the report", where=str(path),
                           fix=f"nsys export --type sqlite --force-overwrite true --output {beside} {path}")
        path, kind = beside, "nsys-sqlite"
    if kind == "nsys-sqlite":
        with located(path):
            return read_nsys(path, steps_range=steps_range)[0]
    if kind == "kineto":
        with located(path):
            return cached_kineto(path, need_steps=False, steps_range=steps_range)
    raise BadInput("not_a_recording", "is no recording of torch.profiler or Nsight Systems", where=str(path),
                   fix="give a .json, .json.gz or .sqlite file")

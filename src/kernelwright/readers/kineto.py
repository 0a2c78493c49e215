"""Reader for Kineto traces (torch.profiler's Chrome JSON, plain or gzip'd) -> event tables in int64 nanoseconds.

Times in the file are decimal microseconds with three decimals ("4375891341195.630"). Above 2^43 us a float64 can no
longer hold single nanoseconds, so the number's own text is decoded and no time ever passes through a float.
"""

from __future__ import annotations

from pathlib import Path

from ..model.errors import BadInput
from ..model.trace import RECORD_AGAIN, STEP_NAME, Trace
from .kineto_collector import Collector, StepsWanted
from .kineto_document import read_document
from .kineto_events import Heading
from .kineto_mend import mended
from .kineto_split import Malformed
from .kineto_stream import OtherLayout, read_parts
from .packed import DEFAULT_MAX_BYTES, unpacked

READER_VERSION = 1
"""To be raised with any change of what is read from the same file."""


def read_kineto(path: Path, *, max_bytes: int = DEFAULT_MAX_BYTES, need_steps: bool = True, steps_range: str | None = None) -> Trace:
    """Read one trace, of any torch since 2.0. max_bytes bounds the decompressed size.

    The steps are the ranges named "kernelwright.step", or `steps_range`. With need_steps=False, where there are none: torch.profiler's own
    (ProfilerStep#N), else the whole recording as one; the trace says which.

    What is laid out as Kineto writes it is read quickly, other layouts event by event; memory follows the number of events either way.

    Raises BadInput for a file that is missing, too large, truncated, not a Kineto trace, without events or (as asked for) a step,
    with a negative duration, or with times that can't be.
    """
    wanted = StepsWanted(steps_range or STEP_NAME, needed=need_steps or steps_range is not None)
    collector = Collector(path.name, wanted)
    try:
        heading = read_parts(unpacked(path, max_bytes), collector)
    except OtherLayout:
        collector = Collector(path.name, wanted)
        try:
            heading = read_document(unpacked(path, max_bytes), collector)
        except Malformed as error:
            collector = Collector(path.name, wanted)
            heading = _read_mended(path, max_bytes, collector, error)
    return collector.trace(heading)


def _read_mended(path: Path, max_bytes: int, collector: Collector, first: Malformed) -> Heading:
    try:
        return read_document(mended(unpacked(path, max_bytes)), collector)
    except Malformed:
        raise BadInput("bad_trace", f"not a readable Kineto trace ({first})", where=path.name, fix=RECORD_AGAIN) from first

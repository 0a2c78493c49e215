"""`trace.perfetto.gz`: the timeline in Perfetto's own format, for https://ui.perfetto.dev and its trace processor."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..model.profile import Operator
from ..model.trace import Trace


def write_perfetto(path: Path, trace: Trace, *, operators: Sequence[Operator] | None = None) -> None:
    """Streams, threads, flows from launch calls to kernels, counters of queue depth and memory. Raises NotWritable.

    operators: the attributed operators; None: the innermost operator around each launch call is looked up in the trace.
    Equal traces give equal bytes.
    """
    raise NotImplementedError

"""All analyses of what a recording is made of, in one record. Definitions: docs/timeline-structure.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..model.base import Figure
from ..model.profile import Operator
from ..model.structure import HostLink, Structure
from ..model.trace import Trace


def structure(trace: Trace, *, operators: Sequence[Operator] = (), peak: Figure | None = None,
              links: Mapping[str, HostLink] | None = None, compare: tuple[int, int] | None = None) -> Structure:
    """Everything but concurrency and gaps.

    operators: attribution's calls of this trace (module, FLOPs, source line of each); without them modules, MFU and lines are not known.
    peak: arithmetic peak at the dtype in use, in TFLOP/s, for MFU. links: device name -> its link to the host. compare: two iterations;
    by default the typical and the slowest. Traces with steps_from "whole" should go through iterations.with_found_steps() first.
    """
    raise NotImplementedError

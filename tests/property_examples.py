"""How many random examples a property is held to."""

from __future__ import annotations

import os
from typing import Any

from hypothesis import settings

TIMES = int(os.environ.get("KERNELWRIGHT_EXAMPLES", "1"))
"""So many times as many as usual: what to set after a change to what is tested."""


def examples(usual: int, **more: Any) -> settings:
    """For @given: `usual` examples, TIMES as many; no deadline for one, since machines are busy."""
    return settings(max_examples=usual * TIMES, deadline=None, **more)

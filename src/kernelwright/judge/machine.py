"""What a verdict says of the machine beside the device's name: enough to tell whether another machine is like it, nothing of its user."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from .. import __version__
from ..capture.gpus import NoGpu, first_visible, nvml

_OF_PROBE = ("device", "python_version", "cuda_version", "triton_version", "compute_capability", "cpu_threads")


def environment_of(facts: Mapping[str, Any]) -> dict[str, str]:
    """facts: what the reference's worker said of its environment -> versions as text, ours and the driver's among them."""
    found = {name: str(facts[name])[:100] for name in _OF_PROBE if facts.get(name) is not None}
    if facts.get("device") == "cuda":
        with contextlib.suppress(NoGpu), nvml() as binding:
            found["driver_version"] = first_visible(binding).driver
    return {**found, "kernelwright_version": __version__}

"""What the documents need that takes time to load, so that it can be loaded beside a workload that runs."""

from __future__ import annotations

import logging
from pathlib import Path

from .templates import environment

TEMPLATES = ("report.md.j2", "contract.md.j2")


def load_templates() -> None:
    """Compile the documents' templates (0.1 s). Raises KernelwrightError."""
    for name in TEMPLATES:
        environment().get_template(name)


def load_drawing() -> None:
    """Import matplotlib (0.5 s). Raises what `roofline.draw` turns into a message.

    Its first run on a machine lists the fonts for seconds, which a workload on the CPU would feel: left to where something is drawn.
    """
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    import matplotlib

    if not any(Path(matplotlib.get_cachedir()).glob("fontlist-*.json")):
        return
    from . import roofline_figure  # noqa: F401


PARTS = (load_drawing, load_templates)

"""The project file that init writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import yaml

from ..pipeline.discover import Found
from .templates import environment


def render_project_file(found: Sequence[Found]) -> str:
    """kernelwright.yaml with a line on what else may stand there."""
    kernels: dict[str, dict[str, Any]] = {}
    for one in found:
        entry: dict[str, Any] = {} if one.file is None else {"file": one.file}
        if one.versions:
            entry["versions"] = one.versions
        kernels[one.name] = {**entry, "devlog": f"devlog/{one.name}.md"}
    text = yaml.safe_dump({"kernels": kernels}, sort_keys=False, allow_unicode=True, width=120)
    head: str = environment().get_template("kernelwright.yaml.j2").render()
    return head.rstrip("\n") + "\n" + text

"""The one change that kernelwright makes to a project file: which version of a kernel is accepted."""

from __future__ import annotations

import json
import re
from pathlib import Path

import yaml

from ..model.errors import BadInput
from ..model.files import write_text_atomic
from .document import Document

_PLAIN = re.compile(r"v[0-9A-Za-z_]+")
"""What needs no quotes, whatever a reader of YAML takes for a number or a truth value."""


def accept(file: Path, kernel: str, version: str) -> str | None:
    """Write `accepted: VERSION` for one kernel of a file that `read_project` takes; all else stays as it is, comments too. Returns the
    version accepted before (None: none). Raises BadInput not_editable where the file is written in a way that this can't keep."""
    document = Document(file)
    kernels = document.value["kernels"]
    before: str | None = kernels[kernel].get("accepted")
    if before == version:
        return before
    wanted = {**document.value, "kernels": {**kernels, kernel: {**kernels[kernel], "accepted": version}}}
    text = _with_accepted(document, kernel, version if _PLAIN.fullmatch(version) else json.dumps(version, ensure_ascii=False))
    if text is None or not _holds(document, text, wanted):  # anchors, merged keys
        raise document.fault("not_editable", ["kernels", kernel], "is written in a way that can't be changed without rewriting it",
                             f"write there by hand: `accepted: {version}`")
    write_text_atomic(file.resolve(), text.replace("\n", "\r\n") if b"\r\n" in file.read_bytes() else text)
    return before


def _holds(document: Document, text: str, wanted: object) -> bool:
    try:
        return bool(document.parsed(text)[1] == wanted)
    except BadInput:
        return False


def _with_accepted(document: Document, kernel: str, words: str) -> str | None:
    """The text with the key's value replaced, else with the key before the kernel's last one."""
    entry = _below(_below(document.root, "kernels"), kernel)
    if not isinstance(entry, yaml.MappingNode) or not entry.value:
        return None
    text, old = document.text, _below(entry, "accepted")
    if old is not None:
        return text[: old.start_mark.index] + words + text[old.end_mark.index :]
    place = entry.value[-1][0].start_mark
    after = ", " if entry.flow_style else "\n" + " " * place.column
    return f"{text[: place.index]}accepted: {words}{after}{text[place.index :]}"


def _below(node: yaml.Node | None, key: str) -> yaml.Node | None:
    pairs = node.value if isinstance(node, yaml.MappingNode) else []
    return next((value for name, value in pairs if isinstance(name, yaml.ScalarNode) and name.value == key), None)

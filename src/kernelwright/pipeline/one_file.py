"""A version that is a function of another file, as one workload file: for a verb whose result names the file that it stands in for."""

from __future__ import annotations

import hashlib
from pathlib import Path

from ..model.files import write_text_atomic
from ..model.workload import WorkloadRef
from .stored import safe_name

_TEXT = '''"""{title}: {function} of {source_name}, with the inputs of {inputs_name}.

Written by kernelwright, and anew when these change.
"""

import functools
import importlib.util
import sys

INPUTS, SOURCE = {inputs!r}, {source!r}
FOLDERS = {folders!r}
DIGESTS = {digests!r}


def _module(path, name):
    spec = importlib.util.spec_from_file_location(name, path)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


sys.path += [folder for folder in FOLDERS if folder not in sys.path]
_inputs = _module(INPUTS, "{prefix}_inputs")
_source = _inputs if SOURCE == INPUTS else _module(SOURCE, "{prefix}_version")
_version = functools.reduce(getattr, {function!r}.split("."), _source)
if isinstance(_version, type):  # an nn.Module
    _initial = _inputs.get_init_inputs() if hasattr(_inputs, "get_init_inputs") else []
    _version = _version(**_initial) if isinstance(_initial, dict) else _version(*_initial)
globals().update({{name: getattr(_inputs, name) for name in ("PARAMS", "reference", "flops", "bytes_moved") if hasattr(_inputs, name)}})

if hasattr(_inputs, "get_inputs"):
    get_inputs = _inputs.get_inputs
    VERSIONS = {{{version!r}: _version}}
else:

    @functools.wraps(_inputs.get_model_and_input)
    def get_model_and_input(*args, **kwargs):
        return _version, _inputs.get_model_and_input(*args, **kwargs)[1]
'''


def as_one_file(workload: WorkloadRef, folder: Path) -> WorkloadRef:
    """The same workload, in a file written below `folder`; itself where a file holds it already. Raises NotWritable.

    The text holds the digests of both files, so that it is another workload's once one of them changes.
    """
    source = workload.source
    if source is None or source.function is None:
        return workload
    name = safe_name("-".join(filter(None, (workload.name, workload.version))))
    files = list(dict.fromkeys((workload.path, source.path)))
    title = " ".join(filter(None, (workload.name, workload.version)))
    text = _TEXT.format(
        title=_quiet(title), function=source.function, source_name=_quiet(source.path.name), inputs_name=_quiet(workload.path.name),
        inputs=str(workload.path), source=str(source.path), version=workload.version, prefix="kernelwright_" + hashlib.sha256(
            title.encode()).hexdigest()[:12], digests=[hashlib.sha256(file.read_bytes()).hexdigest() for file in files],
        folders=[str(place) for place in dict.fromkeys((*(file.parent for file in files), *workload.import_from))])
    path = write_text_atomic((folder / f"{name}.py").absolute(), text)
    makes_inputs = "get_inputs" in workload.path.read_text(encoding="utf-8", errors="replace")
    return workload.model_copy(update={"path": path, "source": None, "version": workload.version if makes_inputs else None})


def _quiet(text: str) -> str:
    """For a docstring: nothing that could end it."""
    return "".join(sign if sign.isalnum() or sign in " ._-" else "_" for sign in text)

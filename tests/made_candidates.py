"""Candidates' files for the CPU, written and loaded as the judge's process would."""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from kernelwright.model.workload import TensorSpec, WorkloadFacts, WorkloadRef
from kernelwright.optimize.generate import render_source, write_source
from kernelwright.optimize.passes import CATALOGUE

_numbers = itertools.count()


def text_of(workload: Path, names: Sequence[str], shape: Sequence[int], *, device: str = "cpu", standalone: bool = False) -> str:
    """Of a candidate with these passes, or of optimized.py, for an inference model with one float32 input of this shape."""
    facts = WorkloadFacts.model_validate({
        "form": "model", "version": None, "params": {}, "inputs": (TensorSpec(path="", shape=shape, dtype="float32", device="cpu"),),
        "outputs": (), "training": False, "dtype": "float32", "parameter_count": 120, "parameter_bytes": 480, "already_compiled": False})
    return render_source(WorkloadRef(path=workload, name="net"), facts, [CATALOGUE[name] for name in names], device=device,
                         standalone=standalone)


def loaded(folder: Path, text: str) -> ModuleType:
    """The module; it imports nothing of kernelwright."""
    assert "kernelwright" not in "".join(line for line in text.splitlines() if line.startswith(("import", "from")))
    name = f"made_candidate_{next(_numbers)}"
    spec = importlib.util.spec_from_file_location(name, write_source(folder / f"{name}.py", text))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

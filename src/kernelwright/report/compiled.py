"""The section of report.md on what was compiled and tuned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..model.profile import CompiledKernel, Profile
from .numbers import us
from .text import NA, Safe, cell, code, plain

MOST_COMPILED = 15
MOST_FOLDERS = 10


@dataclass(frozen=True)
class CompiledRow:
    """One row, already written."""

    name: Safe
    python: Safe
    config: Safe
    registers: str
    spills: str
    shared: str
    tried: str
    best: str
    second: str


@dataclass(frozen=True)
class CompiledSection:
    """Rows of Triton kernels and max-autotune choices; how many are left out; C++ kernels; the folders with the files."""

    rows: list[CompiledRow]
    left: int
    cpp: int
    notes: list[str]
    files: Safe


def compiled_section(profile: Profile) -> CompiledSection | None:
    """None when nothing was compiled. Heaviest stages first, tuned kernels before others."""
    kernels = profile.compiled_kernels
    if not kernels:
        return None
    times = {stage.name: stage.duration_ns for stage in profile.stages}
    shown = sorted((kernel for kernel in kernels if kernel.origin != "inductor_cpp"), key=lambda kernel: (
        kernel.configs_tried is None, -max((times.get(stage, 0.0) for stage in kernel.stages), default=0.0), kernel.kernel_name))
    folders = dict.fromkeys("/".join(path.split("/")[:2]).removesuffix(".json") + "/" for kernel in kernels for path in kernel.artifacts
                            if path.startswith("compiled/"))
    tiling = dict.fromkeys(path for kernel in kernels for path in kernel.artifacts if path.endswith("/autotuning.json"))
    return CompiledSection(
        rows=[_row(kernel) for kernel in shown[:MOST_COMPILED]], left=max(0, len(shown) - MOST_COMPILED),
        cpp=len(kernels) - len(shown),
        notes=_notes(shown[:MOST_COMPILED]),
        files=Safe(", ".join(code(path, 160) for path in [*folders, *tiling][:MOST_FOLDERS])))


def _notes(kernels: Sequence[CompiledKernel]) -> list[str]:
    """Why kernels that were tuned have no timings: the first of each reason."""
    reasons: dict[str, list[str]] = {}
    for kernel in kernels:
        if kernel.tuning_note and kernel.best_ns is None:
            reasons.setdefault(kernel.tuning_note, []).append(kernel.kernel_name)
    return [f"{plain(names[0], 80)}{f' and {len(names) - 1} more' if len(names) > 1 else ''}: {reason}"
            for reason, names in reasons.items()]


def _row(kernel: CompiledKernel) -> CompiledRow:
    python = f"{kernel.python_name} ({kernel.source})" if kernel.python_name and kernel.source else kernel.python_name
    name = kernel.kernel_name if kernel.origin != "template" else f"{kernel.tuned_for}: {kernel.kernel_name}"
    config = ", ".join(f"{key}={value}" for key, value in kernel.config.items())
    return CompiledRow(
        name=code(name, 90), python=cell(python or NA, 80), config=cell(config or NA, 120), registers=_whole(kernel.registers),
        spills=_whole(kernel.spills), shared=_whole(kernel.shared_bytes), tried=_whole(kernel.configs_tried), best=us(kernel.best_ns),
        second=us(kernel.second_ns))


def _whole(value: int | None) -> str:
    return NA if value is None else str(value)

"""Which compiled kernel belongs to which stage, and under which names its files are kept. Pure: reads files, writes none."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from ..attribute.inductor import is_compiled_region
from ..model.compiled import CompiledFile, CompiledIndex, CompiledKernelEntry, CompiledVariant, TemplateChoice, Tuning
from ..model.profile import CompiledKernel, Kernel, Operator, Profile
from ..roofline.stages import is_marked, loose_stage_name, stage_name
from .stored import safe_name

MAX_INDEX_BYTES = 32 << 20
MAX_CODE_BYTES = 4 << 20
UNSEEN_FOLDER = "not-in-timeline"
"""Folder of kernels that ran but appear in no stage of the timeline (they ran while warming up, or were tried in tuning)."""
_NAME_BYTES = 100
_OLD_TRITON_SUFFIX = re.compile(r"_[0-9dce]+$")
_CPP = re.compile(r"^(\w{1,300}) = async_compile\.cpp(?:_pybinding)?\((?:\[[^\]\n]*\], )?r?'''(.*?)^'''", re.MULTILINE | re.DOTALL)
_NODES = re.compile(r"^\s*# Topologically Sorted Source Nodes: \[([^\]\n]*)\]")
_CALL = re.compile(r"^\s*(\w+)(?:\.run\(|\(| = async_compile\.)")
_KERNEL_OF_GRAPH = re.compile(r"^(\w{1,300}) = async_compile\.(?:triton|cpp\w*)\(", re.MULTILINE)


@dataclass(frozen=True)
class CodeFile:
    """One file below compiled/: made of a raw file, or of text."""

    path: str
    raw: str | None = None
    text: str | None = None


@dataclass
class StageArtifacts:
    """What one stage's folders hold. `name` is None for the folder that stands for no stage."""

    folder: str
    name: str | None
    kernels: list[tuple[CompiledKernelEntry | None, CompiledKernel]] = field(default_factory=list)
    choices: list[tuple[TemplateChoice, CompiledKernel]] = field(default_factory=list)
    files: list[CodeFile] = field(default_factory=list)


def read_index(raw: Path, name: str | None) -> tuple[CompiledIndex | None, tuple[str, ...]]:
    """The probe's index and warnings; None when there is none, or it can't be read (its artifacts are then left out)."""
    if name is None:
        return None, ()
    file = raw / name
    try:
        if file.stat().st_size > MAX_INDEX_BYTES:
            return None, (f"raw/{name} is larger than {MAX_INDEX_BYTES >> 20} MiB: no compiled code is shown",)
        return CompiledIndex.model_validate_json(file.read_bytes()), ()
    except OSError as error:
        return None, (f"raw/{name} can't be read: {error.strerror}",)
    except ValidationError as error:
        return None, (f"raw/{name} is not an index of compiled code ({error.error_count()} faults): none is shown",)


def plan(
    index: CompiledIndex, raw: Path, operators: Sequence[Operator], unattributed: Sequence[Kernel], whole: str | None,
) -> list[StageArtifacts]:
    """What goes where. whole: name of the one folder where there is no timeline (event mode); None with a timeline."""
    where = _Where(operators, unattributed)
    stages: dict[str | None, StageArtifacts] = {}
    loose = UNSEEN_FOLDER if whole is None else whole
    taken: set[str] = {UNSEEN_FOLDER, f"{UNSEEN_FOLDER}.json"} if whole is None else set()

    def folders(names: Iterable[str]) -> list[StageArtifacts]:
        keys: list[str | None] = list(names) or [None]
        for key in keys:
            if key not in stages:
                unseen = key is None and whole is None
                stages[key] = StageArtifacts(loose if unseen else free_name(key or loose, taken), key)
        return [stages[key] for key in keys]

    graphs = [(graph, _text(raw, graph.file)) for graph in index.graphs]
    nodes = source_nodes(text for _, text in graphs)
    for entry in index.kernels:
        names = where.of_kernel(entry.name)
        for variant in entry.variants:
            row = _kernel_row(entry, variant, names, nodes.get(entry.name, ()))
            for stage in folders(names):
                stage.kernels.append((entry, _with_files(row, stage, _files(entry, variant))))
    for number, (graph, text) in enumerate(graphs, 1):
        made = [str(name) for name in _KERNEL_OF_GRAPH.findall(text)]
        names = list(dict.fromkeys(stage for kernel in made for stage in where.of_kernel(kernel))) or where.region
        for stage in folders(names):
            output = _place(stage, f"output_code_{number}", "py", raw=graph.file.file)
            for name, code in _CPP.findall(text):
                row = CompiledKernel(kernel_name=name, python_name=None, source=None, origin="inductor_cpp", stages=tuple(names),
                                     fused_nodes=nodes.get(name, ()), artifacts=(_place(stage, name, "cpp", text=code), output))
                stage.kernels.append((None, row))
    for choice in index.choices:
        names = where.of_operator(choice.operator)
        for stage in folders(names):
            stage.choices.append((choice, _choice_row(choice, names)))
    return [stage for _, stage in sorted(stages.items(), key=lambda item: item[1].folder)]


def rows(stages: Sequence[StageArtifacts]) -> tuple[CompiledKernel, ...]:
    """One row a kernel form or choice, with the files of all its stages."""
    merged: dict[tuple[object, ...], CompiledKernel] = {}
    for stage in stages:
        tiling = (f"tiling/{stage.folder}.json", *((f"tiling/{stage.folder}/autotuning.json",) if has_tuning(stage) else ()))
        for owner, row in [*stage.kernels, *stage.choices]:
            key = (id(owner) if owner is not None else row.kernel_name, tuple(sorted(row.config.items(), key=str)))
            known = merged.get(key)
            files = (*(known.artifacts if known else ()), *row.artifacts, *tiling)
            merged[key] = (known or row).model_copy(update={"artifacts": tuple(dict.fromkeys(files))})
    return tuple(merged.values())


def has_tuning(stage: StageArtifacts) -> bool:
    """True when something of this stage was autotuned."""
    return bool(stage.choices) or any(entry is not None and entry.tunings for entry, _ in stage.kernels)


def python_names(index: CompiledIndex) -> dict[str, tuple[str, str | None]]:
    """Kernel name -> (Python function, "file.py:12"), for the workload's own Triton kernels."""
    return {entry.name: (entry.python_name, entry.source) for entry in index.kernels if entry.python_name}


def with_python_names(profile: Profile, names: Mapping[str, tuple[str, str | None]]) -> Profile:
    """Kernels get their python_name; a stage without a source line gets that of its dominant kernel's function."""
    if not names:
        return profile
    operators = tuple(
        operator.model_copy(update={"kernels": tuple(_named(kernel, names) for kernel in operator.kernels)})
        if any(kernel.kernel_name in names for kernel in operator.kernels) else operator for operator in profile.operators)
    stages = tuple(
        stage.model_copy(update={"source": names[stage.dominant_kernel][1]})
        if stage.source is None and stage.dominant_kernel is not None and stage.dominant_kernel in names else stage
        for stage in profile.stages)
    loose = tuple(_named(kernel, names) for kernel in profile.unattributed_kernels)
    return profile.model_copy(update={"operators": operators, "stages": stages, "unattributed_kernels": loose})


def _named(kernel: Kernel, names: Mapping[str, tuple[str, str | None]]) -> Kernel:
    if kernel.kernel_name not in names:
        return kernel
    function, place = names[kernel.kernel_name]
    return kernel.model_copy(update={"python_name": f"{function} ({place})" if place else function})


def source_nodes(texts: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Kernel name -> graph nodes fused into it, from the comments that Inductor writes above its kernels and calls."""
    found: dict[str, tuple[str, ...]] = {}
    for text in texts:
        waiting: tuple[str, ...] = ()
        for line in text.splitlines():
            if match := _NODES.match(line[:20_000]):
                waiting = tuple(name.strip()[:200] for name in match[1].split(",") if name.strip())[:100]
            elif waiting and not line.lstrip().startswith("#"):
                if call := _CALL.match(line[:2000]):
                    found.setdefault(call[1], waiting)
                waiting = ()
    return found


def free_name(text: str, taken: set[str]) -> str:
    """A folder name for `text` that is not taken (nor its name with .json), whatever the case; it is then taken."""
    base = safe_name(text).encode("utf-8")[:_NAME_BYTES].decode("utf-8", "ignore").strip("._") or "unnamed"
    name, number = base, 1
    while {name.casefold(), f"{name}.json".casefold()} & taken:
        number += 1
        name = f"{base}-{number}"
    taken |= {name.casefold(), f"{name}.json".casefold()}
    return name


class _Where:
    """Stages by kernel and operator name, heaviest first."""

    def __init__(self, operators: Sequence[Operator], unattributed: Sequence[Kernel]) -> None:
        self._kernels: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        self._operators: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        regions: dict[str, int] = defaultdict(int)
        marked = is_marked(operators)
        for operator in operators:
            stage, time = stage_name(operator, marked=marked), operator.aggregated.total_duration_ns
            for kernel in operator.kernels:
                self._kernels[kernel.kernel_name][stage] += kernel.duration_ns
            for name in {operator.operator_name.removeprefix("aten::"), *operator.fused_ops}:
                self._operators[name][stage] += time
            if is_compiled_region(operator.operator_name):
                regions[stage] += time
        for kernel in unattributed:
            self._kernels[kernel.kernel_name][loose_stage_name(kernel)] += kernel.duration_ns
        self.region = sorted(regions, key=lambda stage: (-regions[stage], stage))[:1]
        """The stage in which most compiled code ran: on a CPU generated kernels don't appear by name."""
        for name in [name for name in self._kernels if _OLD_TRITON_SUFFIX.search(name)]:
            self._kernels.setdefault(_OLD_TRITON_SUFFIX.sub("", name), self._kernels[name])

    def of_kernel(self, name: str) -> list[str]:
        """Triton 2 appends its specialisation to the name ("row_kernel_0d1d2c")."""
        return _heaviest_first(self._kernels.get(name, {}))

    def of_operator(self, name: str) -> list[str]:
        """Stages with an operator (or fused operator) of that name, else the compiled region."""
        return _heaviest_first(self._operators.get(name, {})) or self.region


def _heaviest_first(times: dict[str, int]) -> list[str]:
    return sorted(times, key=lambda stage: (-times[stage], stage))


def _kernel_row(entry: CompiledKernelEntry, variant: CompiledVariant, stages: Sequence[str], nodes: tuple[str, ...]) -> CompiledKernel:
    tuning = next((item for item in entry.tunings if item.best == variant.config), entry.tunings[0] if len(entry.tunings) == 1 else None)
    best, second = _two_fastest(tuning)
    return CompiledKernel(
        kernel_name=entry.name, python_name=entry.python_name, source=entry.source, origin=entry.origin, stages=tuple(stages),
        config=variant.config, num_warps=variant.num_warps, num_stages=variant.num_stages, registers=variant.registers,
        spills=variant.spills, shared_bytes=variant.shared_bytes, configs_tried=entry.configs_tried, best_ns=best, second_ns=second,
        tuning_note=tuning.note if tuning else "", tuned_for=tuning.key if tuning else "", fused_nodes=nodes)


def _two_fastest(tuning: Tuning | None) -> tuple[float | None, float | None]:
    times = sorted(row.time_ns for row in tuning.timings if row.time_ns is not None) if tuning else []
    return times[0] if times else None, times[1] if len(times) > 1 else None


def _choice_row(choice: TemplateChoice, stages: Sequence[str]) -> CompiledKernel:
    timed = [row for row in choice.timings if row.time_ns is not None]
    return CompiledKernel(
        kernel_name=timed[0].name if timed else "n/a", python_name=None, source=None, origin="template", stages=tuple(stages),
        config={"candidate": timed[0].description} if timed and timed[0].description else {}, configs_tried=choice.candidates,
        best_ns=timed[0].time_ns if timed else None, second_ns=timed[1].time_ns if len(timed) > 1 else None,
        tuned_for=f"{choice.operator}({', '.join(choice.inputs)})")


def _files(entry: CompiledKernelEntry, variant: CompiledVariant) -> list[CompiledFile]:
    return [*variant.files, *([entry.source_file] if entry.source_file else [])]


def _with_files(row: CompiledKernel, stage: StageArtifacts, files: Sequence[CompiledFile]) -> CompiledKernel:
    return row.model_copy(update={"artifacts": tuple(_place(stage, row.kernel_name, file.kind, raw=file.file) for file in files)})


def _place(stage: StageArtifacts, name: str, ending: str, *, raw: str | None = None, text: str | None = None) -> str:
    """Takes a free path in the stage's folder; a raw file that is there already keeps its path."""
    for known in stage.files:
        if raw is not None and known.raw == raw:
            return known.path
    base = safe_name(name).encode("utf-8")[:_NAME_BYTES].decode("utf-8", "ignore")
    taken = {known.path.casefold() for known in stage.files}
    path, number = f"compiled/{stage.folder}/{base}.{ending}", 1
    while path.casefold() in taken:
        number += 1
        path = f"compiled/{stage.folder}/{base}-{number}.{ending}"
    stage.files.append(CodeFile(path, raw, text))
    return path


def _text(raw: Path, file: CompiledFile) -> str:
    path = raw / "compiled" / file.file
    try:
        if path.is_symlink() or path.stat().st_size > MAX_CODE_BYTES:
            return ""
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""

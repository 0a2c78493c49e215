"""annotated/, sass/ and ptx/ of mode ncu: the code of each kernel with its samples, line by line and instruction by instruction."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ..model.errors import printable
from ..model.files import write_json_atomic, write_text_atomic
from ..pipeline.ncu import unused_name
from ..pipeline.ncu_rules import groups
from ..pipeline.stored import safe_name
from ..readers.ncu_records import Instruction, KernelDetails, Line
from .ncu_views import base_name, excess, executed, stall_words
from .templates import render
from .text import NA, Safe

MOST_KERNELS = 32
MAX_KERNEL_NAME = 80
MAX_FILE_NAME = 100
MAX_LINE_CHARACTERS = 500
MAX_LINES = 50_000
MAX_BYTES_A_KERNEL = 16 << 20
PLACED = "ncu_placed.json"
"""In raw/: what a run wrote, so that the next one into the same folder takes away no more than that."""
_OURS = re.compile(r"^(?:annotated/[^/\x00]{1,120}/[^/\x00]{1,120}|sass/[^/\x00]{1,120}|ptx/[^/\x00]{1,120})$")


def write_code(folder: Path, launches: Sequence[KernelDetails]) -> dict[str, str]:
    """Writes the code of the heaviest kernels that the report has code of; kernel -> its name in these folders. Raises NotWritable."""
    _remove_earlier(folder)
    names: dict[str, str] = {}
    placed: list[str] = []
    for name, held in groups(launches).items():
        kernel = next((one for one in held if one.instructions), None)
        if kernel is None or len(names) >= MOST_KERNELS:
            continue
        names[name] = unused_name(safe_name(name)[:MAX_KERNEL_NAME], list(names.values()), "")
        for path, text in _files(kernel, names[name]):
            write_text_atomic(folder / path, text)
            placed.append(path)
    if placed:
        write_json_atomic(folder / "raw" / PLACED, placed)
    return names


def _remove_earlier(folder: Path) -> None:
    file = folder / "raw" / PLACED
    try:
        paths = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return
    for path in paths if isinstance(paths, list) else ():
        if isinstance(path, str) and _OURS.match(path) and ".." not in Path(path).parts:
            (folder / path).unlink(missing_ok=True)
    file.unlink(missing_ok=True)


def _files(kernel: KernelDetails, name: str) -> list[tuple[str, str]]:
    """(path below the profile's folder, text) of one kernel."""
    found = [(f"sass/{name}.sass", sass_text(kernel))]
    if any(one.ptx for one in kernel.instructions):
        found.append((f"ptx/{name}.ptx", ptx_text(kernel)))
    used: list[str] = []
    size = 0
    for file in dict.fromkeys(one.file for one in kernel.instructions if one.file):
        if file not in kernel.sources or size > MAX_BYTES_A_KERNEL:
            continue
        stem = safe_name(base_name(file))[:MAX_FILE_NAME]
        used.append(unused_name(stem, used, ""))
        text = annotated_text(kernel, file)
        size += len(text)
        found.append((f"annotated/{name}/{used[-1]}", text))
    return found


def sass_text(kernel: KernelDetails) -> str:
    """Every instruction with samples, stall reasons, executions, excess sectors and its source line."""
    total = kernel.samples
    rows = [_row(f"{one.offset:#08x}", one.samples, total, one.counters, one.stalls,
                 f"{_short(one.file)}:{one.line}" if one.file else "-", one.sass) for one in kernel.instructions[:MAX_LINES]]
    return render("ncu_sass.txt.j2", rows=_safe(rows), **_head(kernel, total))


def ptx_text(kernel: KernelDetails) -> str:
    """PTX instructions with what the machine instructions made of them hold, in the order of the machine code."""
    total = kernel.samples
    held: dict[tuple[str, int, str], list[Instruction]] = {}
    for one in kernel.instructions[:MAX_LINES]:
        if one.ptx:
            held.setdefault((one.file, one.line, one.ptx), []).append(one)
    rows = []
    for (file, line, ptx), some in held.items():
        samples, stalls, counters = _sums(some)
        rows.append(_row(f"{some[0].offset:#08x}", samples, total, counters, stalls, f"{_short(file)}:{line}" if file else "-", ptx))
    return render("ncu_ptx.txt.j2", rows=_safe(rows), **_head(kernel, total))


def annotated_text(kernel: KernelDetails, file: str) -> str:
    """A source file with the samples and stall reasons of each line."""
    total = kernel.samples
    lines: dict[int, Line] = {one.line: one for one in kernel.lines() if one.file == file}
    texts = kernel.sources[file].split("\n")[:MAX_LINES]
    rows = []
    for number, text in enumerate(texts, 1):
        one = lines.get(number)
        shown = _printable(text.rstrip("\r"))
        rows.append(_row(str(number), one.samples, total, one.counters, one.stalls, "", shown) if one is not None else
                    _row(str(number), None, total, {}, {}, "", shown))
    return render("ncu_annotated.txt.j2", rows=_safe(rows), file=Safe(_printable(file)), **_head(kernel, total))


def _sums(some: Sequence[Instruction]) -> tuple[int, dict[str, int], dict[str, float]]:
    stalls: dict[str, int] = {}
    counters: dict[str, float] = {}
    for one in some:
        for reason, count in one.stalls.items():
            stalls[reason] = stalls.get(reason, 0) + count
        for name, value in one.counters.items():
            counters[name] = counters.get(name, 0.0) + value
    return sum(one.samples for one in some), stalls, counters


def _row(place: str, samples: int | None, total: int, counters: Mapping[str, float], stalls: Mapping[str, int], source: str,
         code: str) -> str:
    share = f"{100 * samples / total:.1f}" if samples is not None and total else "" if samples is None else NA
    cells = (f"{place:>8}", f"{samples if samples is not None else '':>8}", f"{share:>6}", f"{_count(counters, executed):>12}",
             f"{_count(counters, _sectors):>12}", f"{_count(counters, _wavefronts):>12}",
             f"{stall_words(stalls):<44}", *([f"{source:<28}"] if source else []), code[:MAX_LINE_CHARACTERS])
    return " ".join(cells).rstrip()


def _sectors(counters: Mapping[str, float]) -> float | None:
    return excess(counters, "sectors")


def _wavefronts(counters: Mapping[str, float]) -> float | None:
    return excess(counters, "wavefronts")


def _count(counters: Mapping[str, float], read: Callable[[Mapping[str, float]], float | None]) -> str:
    value = read(counters)
    return "" if value is None else f"{value:.0f}"


def _head(kernel: KernelDetails, total: int) -> dict[str, object]:
    return {"kernel": Safe(_printable(kernel.name or kernel.function)), "launch": kernel.index, "report": Safe(_printable(kernel.report)),
            "grid": Safe("x".join(map(str, kernel.grid))), "block": Safe("x".join(map(str, kernel.block))), "total": total}


def _short(file: str) -> str:
    return _printable(base_name(file))[-22:]


def _printable(text: str) -> str:
    """One line of text without what a terminal would obey; tabs become blanks."""
    return printable(text.expandtabs(4)[:MAX_LINE_CHARACTERS])


def _safe(rows: Sequence[str]) -> list[Safe]:
    return [Safe(_printable(row)) for row in rows]



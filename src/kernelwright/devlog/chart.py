"""The chart of a log: time of a call over the versions, from the figures of its entries, which are those of profiles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .entry import DevlogEntry

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_LINES = 8
LINEAR_UP_TO = 20
"""Times that differ by more than this factor stand on a logarithmic axis."""


@dataclass(frozen=True)
class Line:
    """One kernel at one configuration: the newest entry of each version, in the order in which the versions came."""

    name: str
    entries: tuple[DevlogEntry, ...]


def lines_of(entries: Sequence[DevlogEntry]) -> list[Line]:
    """What can be drawn: configurations with two versions or more, those logged last first; at most MOST_LINES."""
    by_key: dict[tuple[object, ...], dict[str, DevlogEntry]] = {}
    for entry in entries:
        if entry.version is not None and entry.figures.duration_ns is not None:
            versions = by_key.pop(entry.key, {})
            by_key[entry.key] = {**versions, entry.version: entry}
    found = [tuple(versions.values()) for versions in reversed(by_key.values()) if len(versions) > 1][:MOST_LINES]
    return [Line(_name(own, [other[-1] for other in found]), own) for own in found]


def _name(own: Sequence[DevlogEntry], all_of_them: Sequence[DevlogEntry]) -> str:
    """What tells this configuration from the others, else the whole of it."""
    mine = _words(own[-1])
    others = [_words(entry) for entry in all_of_them]
    telling = [value for name, value in mine.items() if any(other.get(name) != value for other in others)]
    return " ".join(telling or mine.values())


def _words(entry: DevlogEntry) -> dict[str, str]:
    shapes = "" if entry.parameters else ", ".join(dims for _, dims in entry.inputs)
    evidence = entry.figures.duration_evidence or ""
    words = {"kernel": entry.kernel, "device": entry.device_name, "dtype": entry.dtype, "training": "training" if entry.training else "",
             "compile mode": entry.compile_mode, "L2": "L2 flushed" if entry.figures.l2_flushed else "", "inputs": shapes,
             "evidence": f"({evidence})" if evidence else "",
             **{f"--{name}": f"{name}={value}" for name, value in entry.parameters.items()}}
    return {name: value for name, value in words.items() if value}


def versions_svg(entries: Sequence[DevlogEntry]) -> bytes | None:
    """The picture; None where no two versions were measured under the same conditions."""
    lines = lines_of(entries)
    if not lines:
        return None
    from ..report.drawing import drawn  # matplotlib takes 0.5 s to import

    return drawn(lambda: _figure(entries, lines), "svg")[0]


def _figure(entries: Sequence[DevlogEntry], lines: Sequence[Line]) -> Figure:
    from ..report.drawing import label, new_figure

    figure, axes = new_figure()
    shown = {entry.version for line in lines for entry in line.entries}
    names = [version for version in dict.fromkeys(entry.version for entry in entries) if version in shown]
    times: list[float] = []
    in_doubt = False
    for line in lines:
        own = sorted(line.entries, key=lambda entry: names.index(entry.version))
        medians = [(entry.figures.duration_ns or 0.0) / 1000 for entry in own]
        reach = [[median - (entry.figures.low_ns or median * 1000) / 1000 for entry, median in zip(own, medians, strict=True)],
                 [(entry.figures.high_ns or median * 1000) / 1000 - median for entry, median in zip(own, medians, strict=True)]]
        axes.errorbar([names.index(entry.version) for entry in own], medians, yerr=[[max(0.0, part) for part in side] for side in reach],
                      marker="o", capsize=3, label=label(line.name))
        doubtful = [(names.index(entry.version), median) for entry, median in zip(own, medians, strict=True)
                    if entry.figures.duration_warning]
        if doubtful:
            axes.plot(*zip(*doubtful, strict=True), linestyle="", marker="o", color="white", markersize=4, zorder=3)
            in_doubt = True
        times += medians
    if min(times) > 0 and max(times) > LINEAR_UP_TO * min(times):
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    axes.set_xticks(range(len(names)), [label(name) for name in names])
    kernels = ", ".join(dict.fromkeys(entry.kernel for line in lines for entry in line.entries))
    axes.set(xlabel="version" + (" (hollow: its timing is in doubt)" if in_doubt else ""), ylabel="time of a call (us), 95% interval",
             title=label(f"{kernels}: newest entry of each version"))
    axes.grid(visible=True, alpha=0.3)
    axes.legend()
    return figure

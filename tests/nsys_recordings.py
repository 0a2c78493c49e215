"""The recorded Nsight Systems captures in tests/data/nsys, unpacked once for a whole test run."""

from __future__ import annotations

import csv
import functools
import tempfile
from pathlib import Path

from archives import unpack

ARCHIVES = sorted((Path(__file__).parent / "data" / "nsys").glob("*.tar.xz"))
NAMES = [path.name.removesuffix(".tar.xz") for path in ARCHIVES]
_FOLDER = tempfile.TemporaryDirectory(prefix="nsys-recordings-")


@functools.cache
def recording(name: str) -> Path:
    """The folder of one recording: report.sqlite, result.json, lines.json.gz (eager ones) and stats/*.csv (most)."""
    folder = Path(_FOLDER.name) / name
    return unpack(Path(__file__).parent / "data" / "nsys" / f"{name}.tar.xz", folder)


def stats(name: str, report: str) -> list[dict[str, str]]:
    """One of nsys's own tables of a recording, e.g. "stats_cuda_gpu_kern_sum"; none where nsys wrote an empty one."""
    file = recording(name) / "stats" / f"{report}.csv"
    with file.open(newline="", encoding="utf-8") as text:
        return list(csv.DictReader(text))


WITH_STATS = [name for name in NAMES if name not in ("train_mlp_step", "two_streams")]
"""Of the other two nsys's own tables were not kept."""

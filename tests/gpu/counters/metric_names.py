"""Packs what `ncu --query-metrics` lists for each chip into one small file: a name a line, and a 1 for each chip that has it.

    for chip in ga100 ga102 ad102 gh100 gb100 gb202; do for part in profiling launch source device; do
        ncu --query-metrics --query-metrics-collection $part --chips $chip > lists/$chip.$part.txt; done; done
    python3 tests/gpu/counters/metric_names.py lists tests/data/metric_names.txt.xz

`profiling` is ncu's default collection, so a file lists/$chip.txt counts as it.
"""

from __future__ import annotations

import lzma
import re
import sys
from pathlib import Path

CHIPS = ("ga100", "ga102", "ad102", "gh100", "gb100", "gb202")
ROW = re.compile(r"^(\w+)\s+(?:Counter|Ratio|Throughput)\b", re.MULTILINE)


def main(folder: Path, out: Path) -> None:
    lists = {chip: {name for file in folder.glob(f"{chip}*.txt") if file.name.split(".")[0] == chip
                    for name in ROW.findall(file.read_text(encoding="utf-8"))} for chip in CHIPS}
    every = sorted(set().union(*lists.values()))
    lines = [" ".join(CHIPS), *(f"{name} {''.join('1' if name in lists[chip] else '0' for chip in CHIPS)}" for name in every)]
    out.write_bytes(lzma.compress(("\n".join(lines) + "\n").encode(), preset=9))
    print({chip: len(names) for chip, names in lists.items()}, out.stat().st_size, "bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))

"""KernelBench problems optimised, in the same table as optimize_table.py's. They are read from a folder; none is part of this repository.

  python bench/kernelbench_table.py KernelBench/KernelBench --device cuda --budget 90 --limit-s 560 --append --warm

FOLDER holds level1/, level2/, level3/ with files NUMBER_NAME.py, each in KernelBench's form (class Model, get_inputs, get_init_inputs). By
default ten of level 1, five of level 2 and five of level 3 are taken (PROBLEMS: chosen before any was measured, for their spread of
operators); --problems level1/1,level2/14 names others. A problem that is not there is an error.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import optimize_page as page
import optimize_rows as rows

PROBLEMS = {
    1: (1, 6, 7, 12, 40, 50, 62, 86, 88, 95),
    2: (1, 12, 37, 39, 76),
    3: (3, 4, 5, 43, 44),
}
"""Level -> numbers. Products (square, with a large and a small shared side, by a diagonal), a norm, an activation, convolutions, a loss;
fused chains of convolution or product; whole networks: an MLP, LeNet-5, AlexNet, attention, a GPT block. Those whose inputs and
weights hold at most 1 GiB: each process of a judgement draws or takes over all of them for every round."""


def main(argv: list[str] | None = None) -> int:
    """Measure what is missing; print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="holds level1/, level2/ and level3/")
    parser.add_argument("--problems", help="comma-separated, e.g. level1/1,level3/43")
    rows.add_options(parser, "build/kernelbench_table.json")
    args = rows.checked(parser.parse_args(argv), parser)
    usual = [f"level{level}/{number}" for level, found in PROBLEMS.items() for number in found]
    chosen = args.problems.split(",") if args.problems else usual
    try:
        files = [problem(args.folder, name) for name in chosen]
    except FileNotFoundError as error:
        parser.error(str(error))
    bench = rows.Bench(args, "kernelbench_table")
    bench.run([rows.WorkloadRef(path=file.resolve(), name=f"{file.parent.name}_{file.stem}") for file in files])
    bench.write()
    print(page.table(bench.document["rows"]))
    return 0


def problem(folder: Path, name: str) -> Path:
    """The file of "level1/19". Raises FileNotFoundError."""
    match = re.fullmatch(r"level(\d+)/(\d+)", name)
    if match is None:
        raise FileNotFoundError(f"{name!r} is no problem (form: level1/19)")
    found = sorted((folder / f"level{match[1]}").glob(f"{match[2]}_*.py"))
    if not found:
        raise FileNotFoundError(f"{folder}/level{match[1]} has no file {match[2]}_*.py")
    return found[0]


if __name__ == "__main__":
    sys.exit(main())

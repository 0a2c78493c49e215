"""Runs the benchmarks one after another: `python bench/run.py [--out DIR]` (or `make bench`).

Each is a module beside this one with `main(argv) -> int` and an --out FILE option; each has its peer in the same run.
main_job.py is not one of them: it takes the runs to make as arguments.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

HERE = Path(__file__).resolve().parent
BENCHMARKS = ("event_overhead", "script_overhead", "trace_readers", "timeline_engine")
CHECKED = ("trace_readers", "timeline_engine")
"""Run with --check: exit 1 also when their figures miss what they must reach."""


def main(argv: list[str] | None = None) -> int:
    """Run the benchmarks; the worst of their exit codes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"which (default: all): {', '.join(BENCHMARKS)}")
    parser.add_argument("--out", type=Path, default=HERE.parent / "out" / "bench", metavar="DIR", help="folder for one JSON file each")
    args = parser.parse_args(argv)
    unknown = [name for name in args.names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"no benchmark {unknown[0]!r}; there are: {', '.join(BENCHMARKS)}")
    worst = 0
    for name in args.names or BENCHMARKS:
        print(f"== {name}", flush=True)
        worst = max(worst, load(name).main(["--out", str(args.out / f"{name}.json"), *(["--check"] if name in CHECKED else [])]))
    print(f"\nfigures: {args.out}")
    return worst


def load(name: str) -> ModuleType:
    """The benchmark's module."""
    spec = importlib.util.spec_from_file_location(name, HERE / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    sys.exit(main())

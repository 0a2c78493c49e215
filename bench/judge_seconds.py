"""Where the seconds of one judgement go: its phases, and what each process was asked, by how long the parent waited for the answer.
What one process does while the parent waits for the other is not seen.

  python bench/judge_seconds.py examples/mlp_activations.py candidate.py --device cuda

Judged as a search judges a finalist, without further conditions; without a candidate one that returns the workload as it is. What the
parent does itself (reading exported tensors, comparing them) is shown beside. Times are of one judgement on this machine.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402

from kernelwright.judge import JudgeOptions, exchange, judge, rounds  # noqa: E402
from kernelwright.model.errors import KernelwrightError  # noqa: E402
from kernelwright.model.workload import WorkloadRef  # noqa: E402

AS_IT_IS = "def optimize(model, inputs):\n    return model\n"


class Clock:
    """Seconds and counts by name; `around` wraps a function so that it is counted."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.counts: dict[str, int] = defaultdict(int)

    def around(self, fn: Callable[..., Any], name: Callable[..., str]) -> Callable[..., Any]:
        """fn, each call counted under name(its arguments)."""
        def timed(*args: Any, **kwargs: Any) -> Any:
            start = time.monotonic()
            try:
                return fn(*args, **kwargs)
            finally:
                told = name(*args, **kwargs)
                self.seconds[told] += time.monotonic() - start
                self.counts[told] += 1

        return timed


def main(argv: list[str] | None = None) -> int:
    """Judge once; print two tables. What the judge refuses is one line and its exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload", type=Path)
    parser.add_argument("candidate", type=Path, nargs="?")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    args = parser.parse_args(argv)
    clock = Clock()
    exchange.Exchange.receive = clock.around(  # type: ignore[method-assign]
        exchange.Exchange.receive, lambda side, op, *_: f"{side.worker.role} {op}")
    exchange.read_leaves = clock.around(exchange.read_leaves, lambda *_: "parent reads tensors")
    for name in ("check_round", "check_elsewhere", "same_values"):
        setattr(rounds, name, clock.around(getattr(rounds, name), lambda *_, name=name, **__: f"parent {name}"))
    with tempfile.TemporaryDirectory(prefix="kernelwright-bench-") as folder:
        candidate = args.candidate or Path(folder) / "as_it_is.py"
        if args.candidate is None:
            candidate.write_text(AS_IT_IS)
        workload = WorkloadRef(path=args.workload.resolve(), name=args.workload.stem)
        try:
            verdict = judge(workload, candidate, JudgeOptions(device=args.device, conditions=(), cross_check=False, confirm=False))
        except KernelwrightError as error:
            print(error.line(), file=sys.stderr)
            return error.exit_code
    console = Console(width=110)
    console.print(f"{args.workload.name}: {verdict.verdict}, {verdict.elapsed_s:.1f} s; {verdict.reasons[0]}")
    _print(console, "phase", {phase: (spent, 1) for phase, spent in verdict.phases_s.items()})
    _print(console, "waited for", {name: (clock.seconds[name], clock.counts[name]) for name in clock.seconds})
    return 0


def _print(console: Console, title: str, rows: dict[str, tuple[float, int]]) -> None:
    table = Table(title, "s", "times")
    for name, (spent, count) in sorted(rows.items(), key=lambda row: -row[1][0]):
        if spent >= 0.02:
            table.add_row(name, f"{spent:.2f}", str(count))
    console.print(table)


if __name__ == "__main__":
    sys.exit(main())

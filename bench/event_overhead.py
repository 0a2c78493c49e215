"""What a warm event-mode run adds to the workload's own time.

In one run, interleaved: `scripts/profile_kernel.py W --mode event` against a plain process that imports torch, loads
the same workload with the same interpreter and makes the same number of calls. Whole-process wall time of both, the
median of several rounds. The budget is 2 s.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUDGET_S = 2.0
PLAIN = """
import importlib.util, sys
path, calls, params = sys.argv[1], int(sys.argv[2]), __import__("json").loads(sys.argv[3])
import torch
spec = importlib.util.spec_from_file_location("workload", path)
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
model, x = module.get_model_and_input(**params)
for _ in range(calls):
    model(x)
if torch.cuda.is_available():
    torch.cuda.synchronize()
"""


def main(argv: list[str] | None = None) -> int:
    """Run, print a table, write JSON. Exit 1 with --check when a workload is over the budget."""
    args = _arguments(argv)
    rows = [measure(workload.resolve(), args.rounds, args.python) for workload in args.workloads]
    print(f"\n{'workload':<28}{'calls':>7}{'plain s':>10}{'event s':>10}{'added s':>10}{'ratio':>8}   budget {BUDGET_S:.0f} s")
    for row in rows:
        print(f"{row['workload']:<28}{row['calls']:>7}{row['plain_s']:>10.2f}{row['event_s']:>10.2f}{row['added_s']:>10.2f}"
              f"{row['ratio']:>8.2f}   {'kept' if row['within_budget'] else 'MISSED'}")
    if args.out is not None:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        document = {"benchmark": "event_overhead", "budget_s": BUDGET_S, "rounds": args.rounds, "rows": rows}
        args.out.write_text(json.dumps(document, indent=1) + "\n")
    return 1 if args.check and not all(row["within_budget"] for row in rows) else 0


def measure(workload: Path, rounds: int, python: str | None) -> dict[str, object]:
    """One row: medians over `rounds` interleaved pairs, after one event run that warms caches and fills the calibration."""
    with tempfile.TemporaryDirectory() as folder:
        print(f"{workload.stem}: warming up", file=sys.stderr)
        event_run(workload, Path(folder) / "warm", python)
        plain: list[float] = []
        event: list[float] = []
        calls: list[int] = []
        for number in range(rounds):
            out = Path(folder) / f"round{number}"
            event.append(event_run(workload, out, python))
            params = json.loads((out / "params.json").read_text())
            calls.append(calls_made(out))
            plain.append(plain_run(workload, params["interpreter"]["path"], calls[-1], params["parameters"]))
            print(f"{workload.stem}: round {number + 1} of {rounds}: event {event[-1]:.2f} s, plain {plain[-1]:.2f} s", file=sys.stderr)
    # Each event run is compared with the plain run that made as many calls.
    added = statistics.median(one - other for one, other in zip(event, plain, strict=True))
    return {
        "workload": workload.stem, "calls": int(statistics.median(calls)), "added_s": added,
        "plain_s": statistics.median(plain), "event_s": statistics.median(event),
        "ratio": statistics.median(one / other for one, other in zip(event, plain, strict=True)),
        "within_budget": added < BUDGET_S, "plain_runs_s": plain, "event_runs_s": event,
    }


def event_run(workload: Path, out: Path, python: str | None) -> float:
    """Wall seconds of one event-mode profile, artifacts included."""
    command = [sys.executable, str(ROOT / "scripts" / "profile_kernel.py"), str(workload), "--mode", "event", "--out", str(out), "--json"]
    return _timed(command + (["--python", python] if python else []))


def plain_run(workload: Path, interpreter: str, calls: int, params: dict[str, object]) -> float:
    """Wall seconds of the workload alone."""
    return _timed([interpreter, "-c", PLAIN, str(workload), str(calls), json.dumps(params)])


def calls_made(out: Path) -> int:
    """Warm-up and timed calls of an event run."""
    timing = json.loads((out / "raw" / "result.json").read_text())["timing"]
    return int(timing["warmup_calls"]) + len(timing["samples_ns"]) * int(timing["calls_per_sample"])


def _timed(command: list[str]) -> float:
    begun = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, cwd=ROOT)
    elapsed_s = time.perf_counter() - begun
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command[:4])} ... failed ({done.returncode}): {(done.stderr or done.stdout).strip()[-600:]}")
    return elapsed_s


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", type=Path, help="files with get_model_and_input() (default: three of the examples)",
                        default=[ROOT / "examples" / name for name in ("mlp_activations.py", "gpt2.py", "conv_block.py")])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--python", help="the interpreter that has torch")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the figures there as JSON")
    parser.add_argument("--check", action="store_true", help="exit 1 when a workload is over the budget")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())

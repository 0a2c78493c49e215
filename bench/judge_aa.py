"""How often the judge errs on a program against itself, and how reliably it finds a planted slowdown.

Four parts, each appended to one JSON file, so that they can be spread over several commands (each item is written when it is done):

  aa         complete judgements, everything on, of the same program on both sides: none may be FASTER or SLOWER
  record     pairs of fresh processes, the same program on both sides, timed for --record-s without stopping early: their quads' log ratios
  resample   decisions drawn from the recorded pairs: a pair at random, its quads by circular blocks of 4, the judge's own looks and
             rules, and a second pair where the judge would ask for one. At most 1% may be FASTER or SLOWER
  planted    complete judgements of a candidate that does X% more work: how many are SLOWER, and the seconds of each

The workload is a chain of equal steps (a matrix product and an activation, about 1 ms in all on a CPU; 3 ms on an
H200, so that its kernels, not their launches, take the time). The planted slowdown is exact in work: 2% is
1 more step for 50, on a side tensor; one long timing at the start of that part says what it comes to in time.

  python bench/judge_aa.py --part aa --count 40 --out build/judge_aa.json
  python bench/judge_aa.py --part record --count 60 --append --limit-s 550 --out build/judge_aa.json
  python bench/judge_aa.py --part resample --count 2000 --append --out build/judge_aa.json
  python bench/judge_aa.py --part planted --count 30 --append --out build/judge_aa.json

--append continues the file (a part that has its --count already does nothing more); --limit-s ends the command in time.
Progress goes to stderr. With --check, exit 1 when a limit was missed: 0 of aa, 1% of resample, 28 of 30 of planted within 30 s each.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

from kernelwright.judge import JudgeOptions, judge, timing  # noqa: E402
from kernelwright.judge.confirm_pair import asks_again, together  # noqa: E402
from kernelwright.judge.statistics import ALPHA, MIN_QUADS, Decision, decide, estimate, plan_looks, settled  # noqa: E402
from kernelwright.model.verdict import Verdict  # noqa: E402
from kernelwright.model.workload import WorkloadRef  # noqa: E402

PARTS = ("aa", "record", "resample", "planted")
COUNTS = {"aa": 40, "record": 60, "resample": 2000, "planted": 30}
BLOCK_QUADS = 4
FOUND_WITHIN_S = 30.0
WRONG = ("FASTER", "SLOWER")
WORKLOAD = '''
import torch
from torch import nn

class Chain(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn({width}, {width}) / {width} ** 0.5)

    def forward(self, x):
        for _ in range({steps}):
            x = torch.tanh(x @ self.weight)
        return x

def get_model_and_input():
    return Chain().eval(), torch.randn({rows}, {width})
'''
SAME = "def optimize(model, inputs):\n    return model\n"
PLANTED = '''
import torch

def optimize(model, inputs):
    side = inputs.detach().clone()

    def call(x):
        torch.tanh(side @ model.weight)
        return model(x)

    return call
'''


def main(argv: list[str] | None = None) -> int:
    """Run one part (or all), print its summary, write JSON."""
    args = _arguments(argv)
    document = _start(args)
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(args, document, Path(folder))
        for part in PARTS if args.part == "all" else (args.part,):
            getattr(bench, part)()
    document["summary"] = summary(document)
    _write(args.out, document)
    print(json.dumps(document["summary"], indent=1))
    return 1 if args.check and not all(row["kept"] for row in document["summary"].values()) else 0


class Bench:
    """The parts; each adds rows to its list in the document."""

    def __init__(self, args: argparse.Namespace, document: dict[str, Any], folder: Path) -> None:
        self.args, self.document = args, document
        self.stop_at_s = time.monotonic() + args.limit_s
        self.longest_s = 0.0
        steps = round(100 / args.planted_pct)
        width, rows = args.width or (1024 if args.device == "cuda" else 192), args.rows or (1024 if args.device == "cuda" else 64)
        self.workload = WorkloadRef(path=folder / "chain.py", name="chain")
        self.workload.path.write_text(WORKLOAD.format(width=width, rows=rows, steps=steps))
        self.same, self.slow = folder / "same.py", folder / "planted.py"
        self.same.write_text(SAME)
        self.slow.write_text(PLANTED)
        document["workload"] = {"width": width, "rows": rows, "steps": steps, "planted_pct": 100 / steps}

    def aa(self) -> None:
        """Complete judgements of the same program."""
        for number in self._missing("aa"):
            self._add("aa", number, _row(self._judge(self.same, self.args.max_timing)))

    def record(self) -> None:
        """Log ratios of pairs' quads."""
        with mock.patch.object(timing, "settled", lambda _: False):
            for number in self._missing("record"):
                verdict = self._judge(self.same, self.args.record_s, confirm=False, conditions=(), cross_check=False)
                ratios = verdict.comparison.log_ratios if verdict.comparison is not None else ()
                self._add("record", number, {**_row(verdict), "log_ratios": list(ratios)})

    def resample(self) -> None:
        """Decisions from the recorded pairs."""
        pairs = [np.asarray(row["log_ratios"]) for row in self.document["record"] if len(row["log_ratios"]) >= MIN_QUADS]
        if len(pairs) < 2:
            raise SystemExit("judge_aa: --part resample needs at least 2 recorded pairs (fix: --part record --append first)")
        rng = np.random.default_rng(self.args.seed)
        quads = int(np.median([len(pair) for pair in pairs]))
        single, confirmed = 0, 0
        for _ in range(self.args.count or COUNTS["resample"]):
            first, second = rng.choice(len(pairs), 2, replace=False)
            found = sequential(resampled(pairs[first], quads, rng))
            single += found[0] in WRONG
            if asks_again(*found):
                confirmed += together(found, sequential(resampled(pairs[second], quads, rng)), self.args.device) in WRONG
        self.document["resample"] = [{"decisions": self.args.count or COUNTS["resample"], "pairs": len(pairs), "quads": quads,
                                      "one_pair": single, "two_pairs": confirmed, "seed": self.args.seed}]

    def planted(self) -> None:
        """Judgements of the slower candidate, after one long timing that says how much slower it is."""
        if not self.document.get("planted_long"):
            long = self._judge(self.slow, 5 * self.args.max_timing, confirm=False, conditions=(), cross_check=False)
            self.document["planted_long"] = _row(long)
            _say(f"planted: long timing {self.document['planted_long']}")
        for number in self._missing("planted"):
            self._add("planted", number, _row(self._judge(self.slow, self.args.max_timing)))

    def _judge(self, candidate: Path, max_timing_s: float, **options: Any) -> Verdict:
        start = time.monotonic()
        asked = JudgeOptions(device=self.args.device, python=self.args.python or sys.executable, max_timing_s=max_timing_s, **options)
        verdict = judge(self.workload, candidate, asked)
        self.longest_s = max(self.longest_s, time.monotonic() - start)
        self.document["device_name"], self.document["torch_version"] = verdict.device_name, verdict.torch_version
        return verdict

    def _missing(self, part: str) -> range:
        """Numbers of the rows still to make; ends early when another would not fit before the limit."""
        return range(len(self.document[part]), self.args.count or COUNTS[part])

    def _add(self, part: str, number: int, row: dict[str, Any]) -> None:
        self.document[part].append(row)
        self.document["summary"] = summary(self.document)
        _write(self.args.out, self.document)
        shown = {key: value for key, value in row.items() if key not in ("log_ratios", "phases_s")}
        _say(f"{part} {number + 1} of {self.args.count or COUNTS[part]}: {shown}")
        if time.monotonic() + self.longest_s > self.stop_at_s:
            _say(f"{part}: stopped before --limit-s; continue with --append")
            raise SystemExit(0)


def resampled(values: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """`count` values by circular blocks of BLOCK_QUADS, shape (count,): neighbouring quads stay neighbours."""
    starts = rng.integers(0, values.size, math.ceil(count / BLOCK_QUADS))
    places = (starts[:, None] + np.arange(BLOCK_QUADS)) % values.size
    return values[places.reshape(-1)[:count]]


def sequential(values: np.ndarray) -> tuple[Decision, float, tuple[float, float]]:
    """The judge's decision on these quads, with speed-up and interval: its looks, its rules."""
    looks = plan_looks(values.size, ALPHA)
    found = estimate(values[: looks[0]], len(looks))
    for look in looks:
        found = estimate(values[:look], len(looks))
        if settled(found):
            break
    return decide(found), found.speedup, (found.low, found.high)


def summary(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """What each part came to, against its limit."""
    said: dict[str, dict[str, Any]] = {}
    if document["aa"]:
        wrong = sum(row["verdict"] not in ("SAME", "AMBIGUOUS") for row in document["aa"])
        said["aa"] = {"judgements": len(document["aa"]), "wrong": wrong, **_counts(document["aa"]), "median_s": _median(document["aa"]),
                      "kept": wrong == 0}
    if document["record"]:
        estimates = [float(np.median(row["log_ratios"])) for row in document["record"] if row["log_ratios"]]
        spread = 100 * float(np.std(estimates, ddof=1)) if len(estimates) > 1 else None
        said["record"] = {"pairs": len(estimates), "spread_of_pairs_pct": spread, "kept": True}
    for row in document["resample"]:
        said["resample"] = {**row, "one_pair_pct": 100 * row["one_pair"] / row["decisions"],
                            "two_pairs_pct": 100 * row["two_pairs"] / row["decisions"], "kept": row["two_pairs"] <= 0.01 * row["decisions"]}
    if document["planted"]:
        rows = document["planted"]
        found = sum(row["verdict"] == "SLOWER" and row["elapsed_s"] <= FOUND_WITHIN_S for row in rows)
        said["planted"] = {"trials": len(rows), "found_in_time": found, **_counts(rows), "median_s": _median(rows),
                           "longest_s": max(row["elapsed_s"] for row in rows), "kept": found >= len(rows) * 28 / 30}
    return said


def _counts(rows: list[dict[str, Any]]) -> dict[str, Any]:
    names = [row["verdict"] for row in rows]
    return {"verdicts": {name: names.count(name) for name in sorted(set(names))}}


def _median(rows: list[dict[str, Any]]) -> float:
    return float(np.median([row["elapsed_s"] for row in rows]))


def _row(verdict: Verdict) -> dict[str, Any]:
    return {"verdict": verdict.verdict, "speedup": verdict.speedup, "interval": verdict.interval, "elapsed_s": round(verdict.elapsed_s, 2),
            "reason": verdict.reasons[0] if verdict.reasons else "", "phases_s": verdict.phases_s}


def _start(args: argparse.Namespace) -> dict[str, Any]:
    if args.append and args.out.exists():
        found: dict[str, Any] = json.loads(args.out.read_text())
        return found
    return {"benchmark": "judge_aa", "machine": platform.node(), "device": args.device, **{part: [] for part in PARTS}}


def _write(path: Path, document: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1) + "\n")


def _say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=(*PARTS, "all"), default="all")
    parser.add_argument("--count", type=int, help="items of the part (default: 40 judgements, 60 pairs, 2000 decisions, 30 trials)")
    parser.add_argument("--append", action="store_true", help="continue the file of --out")
    parser.add_argument("--limit-s", type=float, default=math.inf, help="start no item that would not be done after this many seconds")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--python", help="interpreter with torch (default: this one)")
    parser.add_argument("--max-timing", type=float, default=6.0, help="seconds of timing of one pair (default: 6)")
    parser.add_argument("--record-s", type=float, default=2.0, help="seconds of timing of a recorded pair (default: 2)")
    parser.add_argument("--planted-pct", type=float, help="planted slowdown, 100 / a whole number (default: 2 on a GPU, 5 on a CPU)")
    parser.add_argument("--width", type=int, help="of the steps' matrices")
    parser.add_argument("--rows", type=int, help="of the input")
    parser.add_argument("--seed", type=int, default=1, help="of the resampling")
    parser.add_argument("--check", action="store_true", help="exit 1 when a limit was missed")
    parser.add_argument("--out", type=Path, default=Path("build/judge_aa.json"))
    args = parser.parse_args(argv)
    args.planted_pct = args.planted_pct or (2.0 if args.device == "cuda" else 5.0)
    return args


if __name__ == "__main__":
    sys.exit(main())

"""How often the judge errs on a program against itself, and how reliably it finds a planted slowdown.

Its parts, each appended to one JSON file, so that they can be spread over several commands (each item is written when it is done):

  aa         complete judgements, everything on, of the same program on both sides: none may be FASTER or SLOWER
  resample   decisions drawn from the pairs of processes that those recorded (--of planted: the planted ones, their mean taken away):
             pairs at random, their quads by circular blocks of 4, the judge's own looks and rules. At most 1% may be FASTER or SLOWER
  simulate   (no machine) what the rules do to normal luck and noise, as a table
  planted    complete judgements of a candidate that does X% more work: how many are SLOWER, and the seconds of each

The workload is a chain of equal steps (a matrix product and an activation; about 1 ms in all on a CPU, 20 ms on an H200, so that its
kernels, not their launches, take the time). The planted slowdown is exact in work: 2% is 1 more step for 50, on a side tensor; one long
timing at the start of that part says what it comes to in time.

  python bench/judge_aa.py --part aa --limit-s 550 --append --out build/judge_aa.json
  python bench/judge_aa.py --part resample --append --out build/judge_aa.json
  python bench/judge_aa.py --part planted --append --out build/judge_aa.json

OMP_NUM_THREADS=1 gives a program of one thread, which the judge binds to one core of several: on cores that others share it is far
steadier than one of as many threads as cores. The document says how many there were.

--append continues the file (a part that has its --count already does nothing more); --limit-s ends the command in time; --lanes N makes N
judgements at once, which wait for each other's timing as any two judgements on a machine do (that wait is not counted in the 30 s of a
planted one); --add FILE takes over the rows of another machine of the same kind. Progress goes to stderr. With --check, exit 1 when a
limit was missed: 0 of aa, 1% of resample, 28 of 30 of planted within 30 s each.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import platform
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

from kernelwright.judge import JudgeOptions, judge, pairs  # noqa: E402
from kernelwright.judge.blocks import MAX_QUADS  # noqa: E402
from kernelwright.judge.statistics import ALPHA, MIN_QUADS, Estimate, decide, estimate, plan_looks, settled  # noqa: E402
from kernelwright.model.verdict import Verdict  # noqa: E402
from kernelwright.model.workload import WorkloadRef  # noqa: E402

PARTS = ("aa", "resample", "planted")
COUNTS = {"aa": 40, "resample": 2000, "planted": 30}
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
    if args.part == "simulate":
        print("\n".join(simulate(args.count or 1500, args.seed)))
        return 0
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
        self.longest_s, self.writing = 0.0, threading.Lock()
        steps = round(100 / args.planted_pct)
        width, rows = args.width or (2048 if args.device == "cuda" else 192), args.rows or (2048 if args.device == "cuda" else 64)
        self.workload = WorkloadRef(path=folder / "chain.py", name="chain")
        self.workload.path.write_text(WORKLOAD.format(width=width, rows=rows, steps=steps))
        self.same, self.slow = folder / "same.py", folder / "planted.py"
        self.same.write_text(SAME)
        self.slow.write_text(PLANTED)
        document["workload"] = {"width": width, "rows": rows, "steps": steps, "planted_pct": 100 / steps}

    def aa(self) -> None:
        """Complete judgements of the same program."""
        self._each("aa", self.same)

    def resample(self) -> None:
        """Decisions from the recorded pairs."""
        recorded = [pair for row in self.document[self.args.of] for pair in row["pairs"] if len(pair) >= MIN_QUADS]
        if self.args.of == "planted" and recorded:  # what all share is the planted work; luck and noise remain
            planted = float(np.mean([np.mean(pair) for pair in recorded]))
            recorded = [[value - planted for value in pair] for pair in recorded]
        if len(recorded) < pairs.MAX_PAIRS:
            raise SystemExit(f"judge_aa: --part resample needs {pairs.MAX_PAIRS} recorded pairs (fix: --part aa --append first)")
        rng = np.random.default_rng(self.args.seed)
        single, together, count = 0, 0, self.args.count or COUNTS["resample"]
        for _ in range(count):
            drawn = [sequential(resampled(np.asarray(recorded[index]), MAX_QUADS[self.args.device], rng))
                     for index in rng.choice(len(recorded), pairs.MAX_PAIRS, replace=False)]
            single += decide(drawn[0]) in WRONG
            together += decided(drawn, self.args.device) in WRONG
        self.document["resample"] = [{"decisions": count, "pairs": len(recorded), "one_pair": single, "together": together,
                                      "of": self.args.of, "seed": self.args.seed}]

    def planted(self) -> None:
        """Judgements of the slower candidate, after one long timing that says how much slower it is."""
        if not self.document.get("planted_long"):
            long = self._judge(self.slow, 5 * self.args.max_timing, confirm=False, conditions=(), cross_check=False)
            self.document["planted_long"] = _row(long)
            _say(f"planted: long timing {self.document['planted_long']}")
        self._each("planted", self.slow)

    def _each(self, part: str, candidate: Path) -> None:
        """Judge it until the part has its count or time is short."""
        with ThreadPoolExecutor(self.args.lanes) as lanes:
            list(lanes.map(lambda _: self._one(part, candidate), range(len(self.document[part]), self.args.count or COUNTS[part])))

    def _one(self, part: str, candidate: Path) -> None:
        if time.monotonic() + self.longest_s < self.stop_at_s:
            self._add(part, _row(self._judge(candidate, self.args.max_timing)))

    def _judge(self, candidate: Path, max_timing_s: float, **options: Any) -> Verdict:
        start = time.monotonic()
        asked = JudgeOptions(device=self.args.device, python=self.args.python or sys.executable, max_timing_s=max_timing_s, **options)
        verdict = judge(self.workload, candidate, asked)
        self.longest_s = max(self.longest_s, time.monotonic() - start)
        self.document |= {"device_name": verdict.device_name, "torch_version": verdict.torch_version,
                          "cpu_threads": verdict.environment.get("cpu_threads", "")}
        return verdict

    def _add(self, part: str, row: dict[str, Any]) -> None:
        with self.writing:
            self.document[part].append(row)
            self.document["summary"] = summary(self.document)
            _write(self.args.out, self.document)
            shown = {key: value for key, value in row.items() if key not in ("pairs", "phases_s")}
            _say(f"{part} {len(self.document[part])} of {self.args.count or COUNTS[part]}: {shown}")


def resampled(values: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """`count` values by circular blocks of BLOCK_QUADS, shape (count,): neighbouring quads stay neighbours."""
    starts = rng.integers(0, values.size, math.ceil(count / BLOCK_QUADS))
    places = (starts[:, None] + np.arange(BLOCK_QUADS)) % values.size
    return values[places.reshape(-1)[:count]]


def sequential(values: np.ndarray) -> Estimate:
    """What the judge finds in one pair's quads: its looks, its rule to stop."""
    looks = plan_looks(values.size, ALPHA)
    found = estimate(values[: looks[0]], len(looks))
    for look in looks:
        found = estimate(values[:look], len(looks))
        if settled(found):
            break
    return found


def decided(found: list[Estimate], device: str) -> str:
    """The judge's decision where its pairs of processes, as many as it asks for, find this."""
    drawn = [pairs.Pair.of(one) for one in found]
    used = drawn[:1]
    while pairs.worth_another(used, device, ALPHA):
        used = drawn[: len(used) + 1]
    return decide(found[0]) if len(used) == 1 else pairs.pool(used, device, ALPHA).decision


def simulate(count: int, seed: int) -> list[str]:
    """Markdown rows of simulated decisions: luck of pairs and noise of quads normal, 40 quads at most."""
    rng = np.random.default_rng(seed)

    def told(device: str, luck: float, noise: float, slower: float) -> tuple[str, str, int]:
        found: list[Estimate] = []
        while not found or pairs.worth_another([pairs.Pair.of(one) for one in found], device, ALPHA):
            found.append(sequential(-slower + rng.normal(0, luck) + rng.normal(0, noise, MAX_QUADS[device])))
        return decide(found[0]), decided(found, device), len(found)

    rows = ["| Device | Pairs | Quads | A/A FASTER or SLOWER, one pair | together | slower by 2%: found | by 5%: found "
            "| pairs a decision |",
            "|---|---|---|---|---|---|---|---|"]
    for device, luck, noise in (("cuda", 0.002, 0.005), ("cuda", 0.0045, 0.005), ("cuda", 0.0075, 0.01), ("cpu", 0.006, 0.01),
                                ("cpu", 0.01, 0.02), ("cpu", 0.01, 0.05), ("cpu", 0.02, 0.05)):
        same = [told(device, luck, noise, 0.0) for _ in range(count)]
        shares = [sum(one[place] in WRONG for one in same) / count for place in (0, 1)]
        shares += [sum(told(device, luck, noise, math.log1p(slower))[1] == "SLOWER" for _ in range(count)) / count
                   for slower in (0.02, 0.05)]
        rows.append(f"| {device} | {luck:.2%} | {noise:.2%} | {' | '.join(f'{share:.1%}' for share in shares)} "
                    f"| {sum(one[2] for one in same) / count:.2f} |")
    return rows


def summary(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """What each part came to, against its limit."""
    said: dict[str, dict[str, Any]] = {}
    if document["aa"]:
        wrong = sum(row["verdict"] not in ("SAME", "AMBIGUOUS") for row in document["aa"])
        estimates = [float(np.median(pair)) for row in document["aa"] for pair in row["pairs"]]
        spread = 100 * float(np.std(estimates, ddof=1)) if len(estimates) > 1 else None
        said["aa"] = {"judgements": len(document["aa"]), "wrong": wrong, "pairs": len(estimates), "spread_of_pairs_pct": spread,
                      **_counts(document["aa"]), "median_s": _median(document["aa"]),
                      "kept": wrong == 0}
    for row in document["resample"]:
        said["resample"] = {**row, "one_pair_pct": 100 * row["one_pair"] / row["decisions"],
                            "together_pct": 100 * row["together"] / row["decisions"], "kept": row["together"] <= 0.01 * row["decisions"]}
    if document["planted"]:
        rows = document["planted"]
        found = sum(row["verdict"] == "SLOWER" and row["elapsed_s"] - row["waited_s"] <= FOUND_WITHIN_S for row in rows)
        said["planted"] = {"trials": len(rows), "found_in_time": found, **_counts(rows), "median_s": _median(rows),
                           "longest_s": max(row["elapsed_s"] - row["waited_s"] for row in rows), "kept": found >= len(rows) * 28 / 30}
    return said


def _counts(rows: list[dict[str, Any]]) -> dict[str, Any]:
    names = [row["verdict"] for row in rows]
    return {"verdicts": {name: names.count(name) for name in sorted(set(names))}}


def _median(rows: list[dict[str, Any]]) -> float:
    return float(np.median([row["elapsed_s"] - row["waited_s"] for row in rows]))


def _row(verdict: Verdict) -> dict[str, Any]:
    ratios, sizes = list(verdict.comparison.log_ratios) if verdict.comparison is not None else [], ()
    if verdict.comparison is not None:
        sizes = verdict.comparison.quads_of_pairs or (len(ratios),)
    ends = np.cumsum([0, *sizes])
    return {"verdict": verdict.verdict, "speedup": verdict.speedup, "interval": verdict.interval, "elapsed_s": round(verdict.elapsed_s, 2),
            "waited_s": verdict.phases_s.get("waiting for the lock", 0.0), "reason": verdict.reasons[0] if verdict.reasons else "",
            "phases_s": verdict.phases_s, "pairs": [ratios[begin:end] for begin, end in itertools.pairwise(ends)]}


def _start(args: argparse.Namespace) -> dict[str, Any]:
    if args.append and args.out.exists():
        found: dict[str, Any] = json.loads(args.out.read_text())
        return _with(found, args.add)
    return _with({"benchmark": "judge_aa", "machine": platform.node(), "device": args.device, **{part: [] for part in PARTS}}, args.add)


def _with(document: dict[str, Any], files: list[Path]) -> dict[str, Any]:
    for file in files:
        other = json.loads(file.read_text())
        for part in ("aa", "planted"):
            document[part] += other[part]
        document.setdefault("planted_long", other.get("planted_long"))
    return document


def _write(path: Path, document: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1) + "\n")


def _say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=(*PARTS, "simulate", "all"), default="all")
    parser.add_argument("--count", type=int, help="items of the part (default: 40 judgements, 2000 decisions, 30 trials)")
    parser.add_argument("--append", action="store_true", help="continue the file of --out")
    parser.add_argument("--add", type=Path, action="append", default=[], metavar="FILE", help="take over the rows of FILE first")
    parser.add_argument("--lanes", type=int, default=1, help="judgements at once (default: 1)")
    parser.add_argument("--limit-s", type=float, default=math.inf, help="start no item that would not be done after this many seconds")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--python", help="interpreter with torch (default: this one)")
    parser.add_argument("--max-timing", type=float, default=6.0, help="seconds of timing of one pair (default: 6)")
    parser.add_argument("--planted-pct", type=float, help="planted slowdown, 100 / a whole number (default: 2 on a GPU, 5 on a CPU)")
    parser.add_argument("--width", type=int, help="of the steps' matrices")
    parser.add_argument("--rows", type=int, help="of the input")
    parser.add_argument("--of", choices=("aa", "planted"), default="aa", help="whose pairs the part resample draws from")
    parser.add_argument("--seed", type=int, default=1, help="of the resampling")
    parser.add_argument("--check", action="store_true", help="exit 1 when a limit was missed")
    parser.add_argument("--out", type=Path, default=Path("build/judge_aa.json"))
    args = parser.parse_args(argv)
    args.planted_pct = args.planted_pct or (2.0 if args.device == "cuda" else 5.0)
    return args


if __name__ == "__main__":
    sys.exit(main())

"""Both corpora, judged completely on this machine: `python bench/judge_corpus.py [exploits|honest] [--device cuda]`.

Prints a table of the verdicts with the tier of separation that held, and ends with status 1 where an exploit was accepted or an honest
candidate misjudged. `--record` also keeps the run in docs/judge-runs/ (after every candidate; `--limit-s` ends it in time, and the next
command goes on with those that are left) and writes docs/judge-exploits.md and docs/judge-honest.md; `--pages` writes these alone.
Needs kernelwright importable.
"""

from __future__ import annotations

import argparse
import datetime
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

import judge_exploits  # noqa: E402
import judge_honest  # noqa: E402
import judge_runs  # noqa: E402
from judge_corpus import Sessions, said  # noqa: E402
from kernelwright.model.verdict import Verdict  # noqa: E402

PAGES = {"judge-exploits.md": judge_exploits.page, "judge-honest.md": judge_honest.page}


def exploits(sessions: Sessions, device: str, done: set[str]) -> Iterator[tuple[str, Verdict, str]]:
    """(name, verdict, what is wrong with it) of every exploit that is not done."""
    with tempfile.TemporaryDirectory() as folder:
        for exploit in judge_exploits.GPU_EXPLOITS if device == "cuda" else judge_exploits.EXPLOITS:
            if exploit.name not in done:
                workload, candidate = exploit.files
                verdict = sessions.judge(workload, Path(shutil.copy(candidate, folder)))  # a copy: some change their own file
                yield exploit.name, verdict, judge_exploits.problem(exploit, verdict)


def honest(sessions: Sessions, device: str, done: set[str]) -> Iterator[tuple[str, Verdict, str]]:
    """(name, verdict, what is wrong with it) of every honest candidate that is not done."""
    for candidate in judge_honest.GPU_HONEST if device == "cuda" else judge_honest.HONEST:
        if candidate.key not in done:
            yield candidate.key, *judge_honest.judged(candidate, sessions)


def run(corpus: str, device: str, max_timing_s: float, until_s: float, record: bool) -> int:
    """Judge one corpus until the clock (time.monotonic, s) says until_s; returns how many verdicts were not as they must be."""
    kept = judge_runs.Run(corpus, device, datetime.datetime.now(datetime.timezone.utc).date().isoformat(), _commit())
    earlier = judge_runs.read(corpus, device)
    if record and (earlier.date, earlier.commit) == (kept.date, kept.commit):
        kept = earlier
    wrong, begin = 0, time.monotonic()
    print(f"\n## {corpus}\n\n| Candidate | Verdict | Tier | Took | | Says |\n|---|---|---|---|---|---|")
    with Sessions(max_timing_s, device) as sessions:
        for name, verdict, problem in (exploits if corpus == "exploits" else honest)(sessions, device, set(kept.rows)):
            kept.add(name, verdict, problem)
            wrong += bool(problem)
            words = (said(verdict).splitlines() or [""])[0][:160]
            cells = (name, verdict.verdict, kept.rows[name].tier, f"{verdict.elapsed_s:.1f} s", problem or "as it must", words)
            print(f"| {' | '.join(cells)} |", flush=True)
            if record:
                kept.write()
            if time.monotonic() > until_s:
                print("\nout of time; the same command goes on with those that are left", flush=True)
                break
    print(f"\n{wrong} not as they must be, {time.monotonic() - begin:.0f} s")
    return wrong


def _commit() -> str:
    found = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    return found.stdout.strip() or "an export"


def main() -> int:
    """Both corpora, or the one that is named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpora", nargs="*", choices=["exploits", "honest", []], help="exploits, honest; both when left out")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="cuda: the candidates that need a GPU (default: cpu)")
    parser.add_argument("--record", action="store_true", help="keep the run in docs/judge-runs and write the pages")
    parser.add_argument("--pages", action="store_true", help="write the pages in docs, judge nothing")
    parser.add_argument("--max-timing", type=float, metavar="SECONDS", help="longest timing of one judgement (default: 1; 2 on a GPU)")
    parser.add_argument("--limit-s", type=float, default=float("inf"), metavar="SECONDS", help="begin no judgement after so long")
    args = parser.parse_args()
    wrong = 0
    if not args.pages:
        if args.device == "cpu":
            os.environ.setdefault("OMP_NUM_THREADS", "1")
        until_s = time.monotonic() + args.limit_s
        timing_s = args.max_timing or (2.0 if args.device == "cuda" else 1.0)
        wrong = sum(run(corpus, args.device, timing_s, until_s, args.record) for corpus in args.corpora or ["exploits", "honest"])
    if args.pages or args.record:
        for name, page in PAGES.items():
            (ROOT / "docs" / name).write_text(page(), encoding="utf-8")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

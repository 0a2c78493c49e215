"""Both corpora, judged completely on this machine: `python bench/judge_corpus.py [exploits|honest] [--device cuda]`.

Prints a table of the verdicts with the tier of separation that held, and ends with status 1 where an exploit was accepted or an honest
candidate misjudged. `--record` also keeps the run in docs/judge-runs/ (after every candidate) and writes docs/judge-exploits.md and
docs/judge-honest.md; `--limit-s` ends it in time. The next command goes on with those that are left, as long as src and tests are the same;
until then these have an earlier run's verdict where it was as it must be. `--pages` writes the pages alone. `--copy FOLDER` keeps the runs
there too.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "src")]

import judge_exploits  # noqa: E402
import judge_honest  # noqa: E402
import judge_runs  # noqa: E402
from judge_corpus import Sessions, said  # noqa: E402
from kernelwright.model.errors import KernelwrightError, MachineLacks  # noqa: E402
from kernelwright.model.verdict import Verdict  # noqa: E402

Judged = tuple[Verdict, str]
"""A verdict and what is wrong with it."""
SOURCES = ("src", "tests", "examples")
PAGES = {"judge-exploits.md": judge_exploits.page, "judge-honest.md": judge_honest.page}


def exploits(sessions: Sessions, device: str) -> Iterator[tuple[str, Callable[[], Judged]]]:
    """(name, its judgement) of every exploit."""
    def judged(exploit: judge_exploits.Exploit) -> Judged:
        workload, candidate = exploit.files
        with tempfile.TemporaryDirectory() as folder:
            verdict = sessions.judge(workload, Path(shutil.copy(candidate, folder)))  # a copy: some change their own file
            return verdict, judge_exploits.problem(exploit, verdict)

    for exploit in judge_exploits.GPU_EXPLOITS if device == "cuda" else judge_exploits.EXPLOITS:
        yield exploit.name, partial(judged, exploit)


def honest(sessions: Sessions, device: str) -> Iterator[tuple[str, Callable[[], Judged]]]:
    """(name, its judgement) of every honest candidate."""
    for candidate in judge_honest.GPU_HONEST if device == "cuda" else judge_honest.HONEST:
        yield candidate.key, partial(judge_honest.judged, candidate, sessions)


def run(corpus: str, device: str, max_timing_s: float, until_s: float, record: bool, copy: Path | None = None) -> int:
    """Judge one corpus until the clock (time.monotonic, s) says until_s; returns how many verdicts were not as they must be, those that an
    earlier command of the same run recorded too."""
    kept = judge_runs.Run(corpus, device, datetime.datetime.now(datetime.timezone.utc).date().isoformat(), _sources())
    begin = time.monotonic()
    print(f"\n## {corpus}\n\n| Candidate | Verdict | Tier | Took | | Says |\n|---|---|---|---|---|---|")
    with Sessions(max_timing_s, device) as sessions:
        judgements = dict((exploits if corpus == "exploits" else honest)(sessions, device))
        earlier = judge_runs.read(corpus, device)
        if record and earlier.commit == kept.commit:
            kept = earlier
        elif record:
            kept.take_over(earlier, judgements)
        for name, judged in judgements.items():
            if kept.has_judged(name):
                continue
            if time.monotonic() > until_s:
                print("\nout of time; the same command goes on with those that are left", flush=True)
                break
            try:
                verdict, problem = judged()
            except MachineLacks:  # so would the others
                raise
            except KernelwrightError as error:  # the others are judged all the same
                kept.failed(name, error.line())
                words = ""
            else:
                kept.add(name, verdict, problem)
                words = (said(verdict).splitlines() or [""])[0][:160]
            row = kept.rows[name]
            print(f"| {name} | {row.verdict} | {row.tier} | {row.elapsed_s:.1f} s | {row.wrong or 'as it must'} | {words} |", flush=True)
            if record:
                kept.write(copy)
    if record and kept.own:
        kept.write(copy)
    print(f"\n{len(kept.own)} judged, {kept.wrong} not as they must be, {time.monotonic() - begin:.0f} s")
    return kept.wrong


def _sources() -> str:
    """The commit that last changed what is judged or what judges; where there is none, or files were changed since, a digest of those."""
    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()

    commit = git("log", "-1", "--format=%h", "--", *SOURCES)
    if commit and not git("status", "--porcelain", "--", *SOURCES):
        return commit
    digest = hashlib.sha256()
    for path in sorted(path for folder in SOURCES for path in (ROOT / folder).rglob("*.py")):
        digest.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes() + b"\0")
    return f"sources {digest.hexdigest()[:12]}"


def main() -> int:
    """Both corpora, or the one that is named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpora", nargs="*", choices=["exploits", "honest", []], help="exploits, honest; both when left out")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="cuda: the candidates that need a GPU (default: cpu)")
    parser.add_argument("--record", action="store_true", help="keep the run in docs/judge-runs and write the pages")
    parser.add_argument("--copy", type=Path, metavar="FOLDER", help="with --record: keep the runs here too, after every candidate")
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
        try:
            wrong = sum(run(corpus, args.device, timing_s, until_s, args.record, args.copy)
                        for corpus in args.corpora or ["exploits", "honest"])
        except MachineLacks as error:
            print(error.line(), file=sys.stderr)
            return error.exit_code
    if args.pages or args.record:
        for name, page in PAGES.items():
            (ROOT / "docs" / name).write_text(page(), encoding="utf-8")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

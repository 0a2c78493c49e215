"""Both corpora, judged completely on this machine's CPU: `python bench/judge_corpus.py [exploits|honest]`; needs kernelwright importable.

Prints a table of the verdicts, and ends with status 1 where an exploit was accepted or an honest candidate misjudged. `--pages` writes
docs/judge-exploits.md and docs/judge-honest.md instead, which are the tables alone.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

import judge_exploits  # noqa: E402
import judge_honest  # noqa: E402
from judge_corpus import DATA, Sessions, running, said  # noqa: E402

PAGES = {"judge-exploits.md": judge_exploits.page, "judge-honest.md": judge_honest.page}


def exploits(sessions: Sessions) -> int:
    """Judge every exploit; returns how many were accepted."""
    accepted = 0
    with tempfile.TemporaryDirectory() as folder:
        for exploit in judge_exploits.EXPLOITS:
            candidate = Path(shutil.copy(judge_exploits.FOLDER / f"{exploit.name}.py", folder))
            verdict = sessions.judge(DATA / f"{exploit.workload}.py", candidate)
            held = (verdict.verdict in exploit.verdict and exploit.words in said(verdict)
                    and not (exploit.leaves and running(exploit.leaves)))
            waits = f"waits for {judge_exploits.WAITING[exploit.name]}" if exploit.name in judge_exploits.WAITING else "NOT HELD"
            accepted += not held
            _row(exploit.name, verdict.verdict, "" if held else waits, verdict.elapsed_s, said(verdict))
    return accepted


def honest(sessions: Sessions) -> int:
    """Judge every honest candidate; returns how many were misjudged."""
    misjudged = 0
    for candidate in judge_honest.HONEST:
        verdict, wrong = judge_honest.judged(candidate, sessions)
        misjudged += bool(wrong)
        _row(candidate.key, verdict.verdict, wrong, verdict.elapsed_s, said(verdict))
    return misjudged


def _row(name: str, verdict: str, wrong: str, elapsed_s: float, words: str) -> None:
    first = words.splitlines()[0][:160] if words else ""
    print(f"| {name} | {verdict} | {elapsed_s:.1f} s | {wrong or 'as it must'} | {first} |", flush=True)


def main() -> int:
    """Both corpora, or the one that is named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpora", nargs="*", choices=["exploits", "honest", []], help="exploits, honest; both when left out")
    parser.add_argument("--pages", action="store_true", help="write the pages in docs, judge nothing")
    parser.add_argument("--max-timing", type=float, default=1.0, metavar="SECONDS", help="longest timing of one judgement (default: 1)")
    args = parser.parse_args()
    if args.pages:
        for name, page in PAGES.items():
            (ROOT / "docs" / name).write_text(page(), encoding="utf-8")
        return 0
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    wrong = 0
    for corpus in args.corpora or ["exploits", "honest"]:
        begin = time.monotonic()
        print(f"\n## {corpus}\n\n| Candidate | Verdict | Took | | Says |\n|---|---|---|---|---|")
        with Sessions(args.max_timing) as sessions:
            found = exploits(sessions) if corpus == "exploits" else honest(sessions)
        print(f"\n{found} {'not held to their verdict' if corpus == 'exploits' else 'misjudged'}, {time.monotonic() - begin:.0f} s")
        wrong += found
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

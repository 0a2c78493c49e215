"""The main job on this machine: optimise and profile the examples, one table.

    python3 bench/main_job.py --out DIR [--budget 120s] gpt2:equal conv_block:bf16 gpt2:event gpt2:annotation

Each word is EXAMPLE:PRECISION (an optimisation; its baseline, the torch.compile ladder and the result are measured in that one
command) or EXAMPLE:MODE (a profile). Results stay in DIR; summary.json and summary.md are written there.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MODES = ("event", "annotation")


def run(word: str, out: Path, budget: str, extra: list[str]) -> dict[str, object]:
    """One verb as a user calls it; its JSON answer plus wall time."""
    example, what = word.split(":")
    folder = out / f"{example}-{what}"
    optimise = ("optimize.py", ["--precision", what, "--budget", budget])
    script, options = ("profile_kernel.py", ["--mode", what]) if what in MODES else optimise
    workload = ROOT / "examples" / f"{example}.py"
    command = [sys.executable, str(ROOT / "scripts" / script), str(workload), *options, "--out", str(folder), "--json", *extra]
    start = time.monotonic()
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    answer = json.loads(done.stdout) if done.stdout.strip() else {"status": "error", "error": {"message": "no answer"}}
    return {"run": word, "exit": done.returncode, "wall_s": round(time.monotonic() - start, 1), **answer}


def row(answer: dict[str, object]) -> str:
    """One line of the table."""
    detail = ""
    if "profile" in answer:
        profile = json.loads(Path(str(answer["profile"])).read_text())
        timing, timeline = profile["timing"], profile["timeline"]
        detail = f"{timing['median_ns'] / 1e3:.1f} us (iqr {timing['iqr_ns'] / 1e3:.1f})"
        if timeline:
            share = 100 * timeline["attributed_ns"] / timeline["measured_ns"]
            detail += f", attributed {share:.2f}% of {timeline['measured_ns'] / 1e3:.0f} us"
    elif "speedup" in answer:
        detail = f"{answer['speedup']:.3f}x {answer.get('interval')} kept {answer.get('kept')}"
    else:
        detail = json.dumps(answer.get("error"))
    return f"| {answer['run']} | {answer['exit']} | {answer['wall_s']} | {detail} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--budget", default="120s")
    args, extra = parser.parse_known_args()
    args.out.mkdir(parents=True, exist_ok=True)
    answers = []
    for word in args.words:
        answers.append(run(word, args.out.resolve(), args.budget, extra))
        print(row(answers[-1]), flush=True)
    table = ["| run | exit | wall s | result |", "|---|---|---|---|", *map(row, answers)]
    (args.out / "summary.md").write_text("\n".join(table) + "\n")
    (args.out / "summary.json").write_text(json.dumps(answers, indent=1) + "\n")


if __name__ == "__main__":
    main()

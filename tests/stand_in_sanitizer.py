"""A pretended compute-sanitizer: writes the log that its turn for the program asks for, and keeps what it was called with.

Turns are by tool and program, e.g. {"memcheck-candidate": {"log": ..., "exit": 86, "answer": {"ok": true}, "sleep_s": 0}}.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

HEAD = "========= COMPUTE-SANITIZER\n"
CLEAN = f"{HEAD}========= ERROR SUMMARY: 0 errors\n"
OUT_OF_BOUNDS = (f"{HEAD}========= Invalid __global__ write of size 4 bytes\n"
                 "=========     at scale(float *, int)+0x1a0 in /project/work/kernel.cu:14\n"
                 "=========     by thread (31,0,0) in block (3,0,0)\n"
                 "=========     Address 0x7f6510c00001 is out of bounds\n"
                 "=========     and is 1 bytes after the nearest allocation at 0x7f6510c00000 of size 4,096 bytes\n"
                 "=========     Saved host backtrace up to driver entry point at kernel launch time\n"
                 "=========         Host Frame: launch(float*) in /project/work/kernel.so\n"
                 "=========\n"
                 "========= Invalid __global__ read of size 4 bytes\n"
                 "=========     at void at::native::copy_kernel<float>(float *)+0x10\n"
                 "=========\n"
                 "========= ERROR SUMMARY: 33 errors\n"
                 "========= ERROR SUMMARY: 31 errors were not printed. Use --print-limit option to adjust the number of printed errors\n")
_BODY = '''#!{python}
import json, os, sys, time
here = os.path.dirname(os.path.abspath(__file__))
words = sys.argv[1:]
request = json.load(open(words[-1]))
value = lambda name: words[words.index(name) + 1]
with open(os.path.join(here, "calls.jsonl"), "a") as file:
    file.write(json.dumps({{"argv": words, "env": dict(os.environ), "request": request}}) + "\\n")
turn = json.load(open(os.path.join(here, "turns.json")))[value("--tool") + ("-candidate" if request["candidate"] else "-reference")]
if turn.get("log") is not None:
    open(value("--log-file"), "w").write(turn["log"])
if turn.get("answer") is not None:
    json.dump(turn["answer"], open(request["result"], "w"))
if turn.get("run"):
    import subprocess
    subprocess.run(words[-4:], check=False)
time.sleep(turn.get("sleep_s", 0))
sys.exit(turn.get("exit", 0))
'''


class StandInSanitizer:
    """`folder` belongs on the PATH."""

    def __init__(self, folder: Path, **turns: dict[str, Any]) -> None:
        """turns: memcheck_candidate={...}, memcheck_reference={...}."""
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.path = folder, folder / "compute-sanitizer"
        self.path.write_text(_BODY.format(python=sys.executable))
        self.path.chmod(0o755)
        (folder / "turns.json").write_text(json.dumps({name.replace("_", "-"): turn for name, turn in turns.items()}))

    def calls(self) -> list[dict[str, Any]]:
        """argv, env and request of each call."""
        file = self.folder / "calls.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def clean(**more: Any) -> dict[str, Any]:
    """The turn of a run that found nothing."""
    return {"log": CLEAN, "answer": {"ok": True}, **more}


def found(log: str = OUT_OF_BOUNDS, **more: Any) -> dict[str, Any]:
    """The turn of a run that found errors."""
    return {"log": log, "answer": {"ok": True}, "exit": 86, **more}

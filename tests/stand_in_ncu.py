"""A pretended ncu: an executable that does what a list of turns tells, one a call, and keeps its arguments and environment.

A turn: `log` (ncu's own words, into --log-file), `said` (its stdout), `report` (a file to copy to --export), `result` (the probe's
result.json; None: not written), `waits` (as the probe does for request.json's wait_for), `run` (start the program), `sleep_s`, `kill` (a
signal to itself), `exit`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

VERSION = "NVIDIA (R) Nsight Compute Command Line Profiler\nVersion 2025.3.1.0 (build 36398880) (public-release)\n"
NOTE = "==WARNING== Note: Running with unmodified GPU clocks. If not controlled otherwise, profiling results may be inconsistent.\n"
CONNECTED = f"{NOTE}==PROF== Connected to process 4053 (/usr/bin/python3.12)\n"
REPLAYED = "".join(f'==PROF== Profiling "kernel" - {number}: 0%....50%....100% - 12 passes\n' for number in range(3))
GOOD = f"{CONNECTED}{REPLAYED}==PROF== Disconnected from process 4053\n"
DENIED = (f"{CONNECTED}==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters on the "
          "target device 0. For instructions on enabling permissions and to get more information see "
          "https://developer.nvidia.com/ERR_NVGPUCTRPERM\n==PROF== Disconnected from process 4053\n==WARNING== No kernels were profiled.\n")
_BODY = '''#!{python}
import json, os, shutil, signal, subprocess, sys, time
here = os.path.dirname(os.path.abspath(__file__))
words = sys.argv[1:]
if words == ["--version"]:
    sys.stdout.write({version!r})
    sys.exit(0)
with open(os.path.join(here, "calls.jsonl"), "a") as file:
    file.write(json.dumps({{"argv": words, "env": dict(os.environ)}}) + "\\n")
calls = sum(1 for _ in open(os.path.join(here, "calls.jsonl")))
turns = json.load(open(os.path.join(here, "turns.json")))
turn = turns[min(calls, len(turns)) - 1]
value = lambda name: words[words.index(name) + 1].replace("%%", "%")
with open(value("--log-file"), "w") as log:
    log.write(turn.get("log", ""))
sys.stdout.write(turn.get("said", ""))
sys.stdout.flush()
request = json.load(open(words[-1]))
while turn.get("waits") and not os.path.exists(request["wait_for"]):
    time.sleep(0.01)
if turn.get("result") is not None:
    json.dump(turn["result"], open(os.path.join(request["out_dir"], "result.json"), "w"))
if turn.get("run"):
    subprocess.run(words[-4:])
time.sleep(turn.get("sleep_s", 0))
if turn.get("kill"):
    os.kill(os.getpid(), turn["kill"])
if turn.get("report"):
    shutil.copyfile(turn["report"], value("--export"))
sys.exit(turn.get("exit", 0))
'''


class StandInNcu:
    """`path` is the executable."""

    def __init__(self, folder: Path, *turns: dict[str, Any]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.path = folder, folder / "ncu"
        self.path.write_text(_BODY.format(python=sys.executable, version=VERSION))
        self.path.chmod(0o755)
        (folder / "turns.json").write_text(json.dumps(turns))

    def calls(self) -> list[dict[str, Any]]:
        """argv and env of each call but `--version`."""
        file = self.folder / "calls.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def good(report: Path, **more: Any) -> dict[str, Any]:
    """The turn of a run that worked."""
    return {"log": GOOD, "report": str(report), "result": {"status": "ok"}, **more}


def stand_in_sudo(folder: Path, *, allows: bool) -> Path:
    """A sudo that runs what it is given, or refuses as the real one does without a terminal; returns its folder, for the PATH."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "sudo"
    runs, refuses = 'printf "%s\\n" "$*" >> "$(dirname "$0")/sudo.log"; shift; exec "$@"', 'echo "sudo: a password is required" >&2; exit 1'
    body = runs if allows else refuses
    program.write_text(f"#!/bin/sh\n{body}\n")
    program.chmod(0o755)
    return folder

"""A pretended nsys: an executable that does what a list of turns tells, one a recording, and keeps its arguments and environment.

A turn: `said` (its stdout), `report` (bytes of the .nsys-rep as text), `sqlite` (a file that its export copies), `result` (a file to copy
to the probe's result.json), `also` (files to copy beside it), `blocks` (environments that it writes into the export's StringIds),
`sleep_s`, `exit`, `export_exit`. Its own environment goes into report and export, as that of the recorded process does.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

VERSION = "NVIDIA Nsight Systems version 2025.3.2.474-253236389321v0\n"
_BODY = '''#!{python}
import json, os, shutil, sqlite3, sys, time
here = os.path.dirname(os.path.abspath(__file__))
words = sys.argv[1:]
if words == ["--version"]:
    sys.stdout.write({version!r})
    sys.exit(0)
with open(os.path.join(here, "calls.jsonl"), "a") as file:
    file.write(json.dumps({{"argv": words, "env": dict(os.environ), "pids": sum(name.isdigit() for name in os.listdir("/proc"))}}) + "\\n")
calls = [json.loads(line)["argv"][0] for line in open(os.path.join(here, "calls.jsonl"))]
turns = json.load(open(os.path.join(here, "turns.json")))
turn = turns[min(max(1, calls.count("profile")), len(turns)) - 1]
output = words[words.index("--output") + 1].replace("%%", "%")
own = "\\0".join(name + "=" + value for name, value in os.environ.items())
blocks = [own] + turn.get("blocks", [])
if words[0] == "export":
    if turn.get("export_exit"):
        sys.stdout.write("Importer error: the file is damaged\\n")
        sys.exit(turn["export_exit"])
    shutil.copyfile(turn["sqlite"], output)
    connection = sqlite3.connect(output)
    first = connection.execute("SELECT coalesce(max(id), 0) + 1 FROM StringIds").fetchone()[0]
    connection.executemany("INSERT INTO StringIds (id, value) VALUES (?, ?)", [(first + at, block) for at, block in enumerate(blocks)])
    connection.execute("INSERT INTO META_DATA_CAPTURE (name, value) VALUES ('PROCESS_0:ENVIRONMENT', ?)", (own,))
    connection.commit()
    connection.close()
    sys.exit(0)
sys.stdout.write(turn.get("said", ""))
sys.stdout.flush()
request = json.load(open(words[-1]))
if turn.get("result"):
    result = json.load(open(turn["result"]))
    for key in ("ops_file", "compiled_file"):  # the recordings do not have them
        result[key] = None
    json.dump(result, open(os.path.join(request["out_dir"], "result.json"), "w"))
for file in turn.get("also", ()):
    shutil.copy(file, request["out_dir"])
time.sleep(turn.get("sleep_s", 0))
if turn.get("report") is not None:
    with open(output + ".nsys-rep", "w") as file:
        file.write(turn["report"] + "\\0".join(blocks))
sys.exit(turn.get("exit", 0))
'''


class StandInNsys:
    """`path` is the executable."""

    def __init__(self, folder: Path, *turns: dict[str, Any]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.path = folder, folder / "nsys"
        self.path.write_text(_BODY.format(python=sys.executable, version=VERSION))
        self.path.chmod(0o755)
        (folder / "turns.json").write_text(json.dumps(turns))

    def calls(self) -> list[dict[str, Any]]:
        """argv, env and the number of processes that it saw, of each call but `--version`."""
        file = self.folder / "calls.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def good(recording: Path, **more: Any) -> dict[str, Any]:
    """The turn of a run that worked: a recording of tests/data/nsys, unpacked into `recording`."""
    also = [str(recording / name) for name in ("lines.json.gz",) if (recording / name).is_file()]
    return {"report": "NVIDIA Tegra Profiler Report 1.", "sqlite": str(recording / "report.sqlite"),
            "result": str(recording / "result.json"), "also": also, **more}

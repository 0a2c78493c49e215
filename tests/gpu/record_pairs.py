"""Records the pairs of tests/gpu/pairs (a workload that shows an issue, and one that does not) into one small archive.

    python3 tests/gpu/record_pairs.py OUT.tar.xz [ISSUE[:VERSION] ...]

Without a GPU the pairs run on the CPU, which tests the recorder itself. Every capture runs with an allow-listed environment in a
neutral folder, as in record.py. Of a recording with stacks that holds a compiler at work (60,000 frames), the frames inside the
compiler's outermost one are left out; "thinned_python_frames" in the file counts them.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
LEFT_OUT = ("log",)
COMPILER = re.compile(r"^(?:.*/)?torch/_(?:dynamo|inductor|functorch)/")
"""Frames of the compiler, as Kineto shortens them; of each nest the outermost is kept, and the workload's own."""
THINNED_ABOVE = 10_000
"""Python frames; smaller recordings stay as they are."""


def versions(file: Path) -> list[str]:
    """Names of the versions that a pair defines, read from its source."""
    table = re.search(r"^VERSIONS = \{(.*)\}", file.read_text(), re.MULTILINE)
    assert table is not None, f"{file} has no VERSIONS"
    return re.findall(r'"(\w+)":', table[1])


def record(place: Path, issue: str, version: str) -> Path:
    """One capture; returns its folder."""
    folder = place / "captures" / f"{issue}_{version}"
    folder.mkdir(parents=True)
    request = {
        "action": "annotation", "workload": {"path": str(place / "pairs" / f"{issue}.py"), "version": version, "params": {}},
        "device": "auto", "out_dir": str(folder), "seed": 0, "compile_mode": "eager", "warmup": None, "steps": 2,
        "flush_l2": False, "calibrate": issue == "kernel_bottleneck", "stacks": True,
    }
    (folder / "request.json").write_text(json.dumps(request))
    environment = {key: os.environ[key] for key in ("PATH", "LD_LIBRARY_PATH", "CUDA_HOME") if key in os.environ}
    environment.update(HOME=str(place), LANG="C.UTF-8", TORCHINDUCTOR_CACHE_DIR=str(place / "cache"))
    with (folder / "log").open("wb") as log:
        status = subprocess.run([sys.executable, str(place / "probe" / "start.py"), "run", str(folder / "request.json")],
                                env=environment, cwd=place, stdout=log, stderr=log, check=False, timeout=300).returncode
    result = json.loads((folder / "result.json").read_text()) if (folder / "result.json").exists() else {"status": "none"}
    print(folder.name, status, result["status"], result.get("error"), result.get("warnings"), result.get("phases_s"), flush=True)
    if result["status"] != "ok":
        print((folder / "log").read_text()[-2000:])
    thin(folder / "trace_stacks.json.gz")
    return folder


def thin(file: Path) -> int:
    """Drop the Python frames that lie inside another frame of the compiler; returns how many."""
    if not file.exists():
        return 0
    document = json.loads(gzip.decompress(file.read_bytes()))
    frames = [event for event in document["traceEvents"] if event.get("cat") == "python_function"]
    if len(frames) <= THINNED_ABOVE:
        return 0
    dropped, until = set(), {}
    for event in sorted(frames, key=lambda event: (event["tid"], event["ts"], -event["dur"])):
        end = event["ts"] + event["dur"]
        if event["ts"] < until.get(event["tid"], float("-inf")):
            if "pairs/" not in event["name"]:
                dropped.add(id(event))
        elif COMPILER.match(event["name"]):
            until[event["tid"]] = end
    document["traceEvents"] = [event for event in document["traceEvents"] if id(event) not in dropped]
    document["thinned_python_frames"] = len(dropped)
    file.write_bytes(gzip.compress(json.dumps(document).encode(), mtime=0))
    print(f"{file.parent.name}: {len(dropped)} of {len(frames)} Python frames left out", flush=True)
    return len(dropped)


def main() -> None:
    out, wanted = Path(sys.argv[1]), sys.argv[2:] or sorted(file.stem for file in (HERE / "pairs").glob("*.py"))
    place = Path(tempfile.mkdtemp(prefix="recording-"))
    shutil.copytree(HERE / "pairs", place / "pairs", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "src" / "kernelwright" / "probe", place / "probe", ignore=shutil.ignore_patterns("__pycache__"))
    out.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(out, "w:xz", preset=9) as archive:
        for name in wanted:
            issue, _, version = name.partition(":")
            for one in [version] if version else versions(place / "pairs" / f"{issue}.py"):
                folder = record(place, issue, one)
                for file in sorted(folder.iterdir()):
                    if file.name not in LEFT_OUT:
                        archive.add(file, arcname=f"{folder.name}/{file.name}")
    shutil.rmtree(place)
    print(f"{out}: {out.stat().st_size} bytes", flush=True)


if __name__ == "__main__":
    main()

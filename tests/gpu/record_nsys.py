"""Records small real Nsight Systems captures: the golden inputs of the tests that run without a GPU.

    python3 tests/gpu/record_nsys.py OUT.tar.xz [NAME[:COMPILE_MODE] ...]

NAME: an example, or a workload of tests/gpu/nsys/. nsys must be on PATH. Each recording runs with an allow-listed environment in a neutral
folder, since it holds its process's environment and paths; nsys also reads the environments of all other processes that it may look at,
so those are taken out of the SQLite export. Kept of each: result.json, the lines, the SQLite export, the report itself
(with --reports), and what nsys's own `stats` and `analyze` say of it (stats/*.csv), which the tests compare ours with.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PLACE = Path(tempfile.mkdtemp(prefix="recording-"))
DEFAULT = ("mlp_activations", "two_streams", "slow_loader", "hidden_sync", "train_mlp_step", "mlp_activations:cudagraphs",
           "mlp_activations:inductor", "conv_block", "gpt2", "gpt2:inductor")
KEPT = ("result.json", "lines.json.gz", "report.sqlite")
STATS = ("cuda_gpu_kern_sum", "cuda_gpu_mem_time_sum", "cuda_gpu_mem_size_sum", "cuda_gpu_trace", "cuda_api_sum", "nvtx_sum",
         "cuda_kern_exec_trace", "nvtx_gpu_proj_sum")
ANALYZE = ("gpu_gaps", "gpu_time_util", "cuda_api_sync", "cuda_memcpy_async", "cuda_memcpy_sync")
OPTIONS = ("--trace=cuda,nvtx", "--sample=none", "--cpuctxsw=none", "--capture-range=cudaProfilerApi", "--capture-range-end=stop",
           "--cuda-graph-trace=node", "--cuda-memory-usage=true", "--stats=false", "--force-overwrite=true")


def record(name: str, compile_mode: str, extra: tuple[str, ...] = ()) -> Path:
    """One capture; returns its folder."""
    stem = (name if compile_mode == "eager" else f"{name}-{compile_mode}") + "".join(word.partition("=")[0] for word in extra)
    folder = PLACE / "captures" / stem
    folder.mkdir(parents=True)
    request = {
        "action": "nsys", "workload": {"path": str(PLACE / "examples" / f"{name}.py"), "version": None, "params": {}},
        "device": "cuda", "out_dir": str(folder), "seed": 0, "compile_mode": compile_mode, "warmup": None, "steps": 2,
        "flush_l2": False, "calibrate": False, "stacks": compile_mode == "eager",
    }
    (folder / "request.json").write_text(json.dumps(request))
    environment = {key: os.environ[key] for key in ("PATH", "LD_LIBRARY_PATH", "CUDA_HOME") if key in os.environ}
    environment.update(HOME=str(PLACE), LANG="C.UTF-8")
    began = time.monotonic()
    with (folder / "log").open("wb") as log:
        words = ["nsys", "profile", *OPTIONS, *extra, "--output", str(folder / "report"), sys.executable,
                 str(PLACE / "probe" / "start.py"), "run", str(folder / "request.json")]
        status = subprocess.run(words, env=environment, cwd=PLACE, stdout=log, stderr=log, check=False).returncode
        profiled = time.monotonic()
        report = folder / "report.nsys-rep"
        subprocess.run(["nsys", "export", "--type=sqlite", "--force-overwrite=true", "--output", str(folder / "report.sqlite"),
                        str(report)], env=environment, cwd=PLACE, stdout=log, stderr=log, check=False)
        exported = time.monotonic()
        (folder / "stats").mkdir()
        for verb, names in (("stats", STATS), ("analyze", ANALYZE)):
            subprocess.run(["nsys", verb, "--format=csv", "--report" if verb == "stats" else "--rule", ",".join(names),
                            "--output", str(folder / "stats" / verb), str(report)],
                           env=environment, cwd=PLACE, stdout=log, stderr=log, check=False)
    result = json.loads((folder / "result.json").read_text()) if (folder / "result.json").exists() else {"status": "none"}
    sizes = {file.name: file.stat().st_size for file in folder.iterdir() if file.is_file()}
    print(folder.name, status, result["status"], result.get("error"), result.get("phases_s"), sizes,
          f"profile {profiled - began:.1f} s, export {exported - profiled:.1f} s, stats {time.monotonic() - exported:.1f} s", flush=True)
    if result["status"] != "ok" or not (folder / "report.sqlite").exists():
        print((folder / "log").read_text()[-3000:])
    return folder


def scrub(database: Path) -> None:
    """Take out what tells of the machine: environments, other processes, paths of programs."""
    connection = sqlite3.connect(database)
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    steps = {
        "StringIds": ("UPDATE StringIds SET value = '' WHERE instr(value, char(0)) OR (value LIKE '%PATH=%')",
                      "UPDATE StringIds SET value = '' WHERE value LIKE 'kworker/%' OR value LIKE '/tmp/nvidia/%'"),
        "PROCESSES": ("DELETE FROM PROCESSES WHERE globalPid NOT IN (SELECT globalTid & ~0xFFFFFF FROM CUPTI_ACTIVITY_KIND_RUNTIME)",
                      "UPDATE PROCESSES SET name = 'python3'"),
        "TARGET_INFO_SYSTEM_ENV": ("DELETE FROM TARGET_INFO_SYSTEM_ENV",),
        "META_DATA_CAPTURE": ("DELETE FROM META_DATA_CAPTURE WHERE name LIKE '%ENVIRONMENT%' OR name LIKE 'PROCESS_0:%'",),
    }
    for table, statements in steps.items():
        for statement in statements if table in tables else ():
            connection.execute(statement)
    connection.commit()
    connection.execute("VACUUM")
    connection.close()


def main() -> None:
    words = sys.argv[1:]
    reports = "--reports" in words
    extra = tuple(word for word in words if word.startswith("--") and word != "--reports")
    out, *names = (word for word in words if not word.startswith("--"))
    shutil.copytree(ROOT / "examples", PLACE / "examples")
    for file in (ROOT / "tests" / "gpu" / "nsys").glob("*.py"):
        shutil.copy(file, PLACE / "examples")
    shutil.copytree(ROOT / "src" / "kernelwright" / "probe", PLACE / "probe")
    with tarfile.open(out, "w:xz") as archive:
        for name in names or DEFAULT:
            example, _, compile_mode = name.partition(":")
            folder = record(example, compile_mode or "eager", extra)
            if (folder / "report.sqlite").exists():
                scrub(folder / "report.sqlite")
            for file in (*KEPT, *(("report.nsys-rep",) if reports else ())):
                if (folder / file).exists():
                    archive.add(folder / file, arcname=f"{folder.name}/{file}")
            for file in sorted((folder / "stats").iterdir()):
                archive.add(file, arcname=f"{folder.name}/stats/{file.name}")


if __name__ == "__main__":
    main()

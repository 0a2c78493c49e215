"""Records small real captures of the examples on a GPU: the golden inputs of the tests that run without one.

    python3 tests/gpu/record.py OUT.tar.xz [EXAMPLE[:COMPILE_MODE] ...]

Every capture runs with an allow-listed environment in a neutral folder, since a recording can hold its process's environment
and paths. Stacks are recorded for the source lines; request.json and the log are left out.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PLACE = Path(tempfile.mkdtemp(prefix="recording-"))
DEFAULT = ("mlp_activations", "conv_block", "sdpa_attention", "lstm_sequence_encoder", "train_mlp_step", "gpt2", "gpt2:inductor",
           "mlp_activations:cudagraphs")
KEPT = ("result.json", "ops.json", "trace.json.gz", "trace_stacks.json.gz", "lines.json.gz")


def record(example: str, compile_mode: str) -> Path:
    """One capture; returns its folder."""
    folder = PLACE / "captures" / (example if compile_mode == "eager" else f"{example}-{compile_mode}")
    folder.mkdir(parents=True)
    request = {
        "action": "annotation", "workload": {"path": str(PLACE / "examples" / f"{example}.py"), "version": None, "params": {}},
        "device": "cuda", "out_dir": str(folder), "seed": 0, "compile_mode": compile_mode, "warmup": None, "steps": 2,
        "flush_l2": False, "calibrate": True, "stacks": compile_mode == "eager",
    }
    (folder / "request.json").write_text(json.dumps(request))
    environment = {key: os.environ[key] for key in ("PATH", "LD_LIBRARY_PATH", "CUDA_HOME") if key in os.environ}
    environment.update(HOME=str(PLACE), LANG="C.UTF-8")
    with (folder / "log").open("wb") as log:
        status = subprocess.run([sys.executable, str(PLACE / "probe" / "start.py"), "run", str(folder / "request.json")],
                                env=environment, cwd=PLACE, stdout=log, stderr=log, check=False).returncode
    result = json.loads((folder / "result.json").read_text()) if (folder / "result.json").exists() else {"status": "none"}
    print(folder.name, status, result["status"], result.get("error"), result.get("phases_s"), flush=True)
    if result["status"] != "ok":
        print((folder / "log").read_text()[-2000:])
    return folder


def main() -> None:
    out, names = Path(sys.argv[1]), sys.argv[2:] or DEFAULT
    shutil.copytree(ROOT / "examples", PLACE / "examples")
    shutil.copytree(ROOT / "src" / "kernelwright" / "probe", PLACE / "probe")
    with tarfile.open(out, "w:xz") as archive:
        for name in names:
            example, _, compile_mode = name.partition(":")
            folder = record(example, compile_mode or "eager")
            for file in KEPT:
                if (folder / file).exists():
                    archive.add(folder / file, arcname=f"{folder.name}/{file}")


if __name__ == "__main__":
    main()

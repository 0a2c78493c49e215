"""What the profiler adds to each profiled step of a script, as a ratio of the unprofiled step of the same run.

Runs `profile_kernel.py SCRIPT --warmup N` and reads what it measured: the median of the unprofiled warm-up steps beside the
median of the profiled ones (CUDA events on the GPU, the host's clock on the CPU).

    python3 bench/script_overhead.py [SCRIPT] [--warmup N] [--out FILE] -- ARGUMENTS OF THE SCRIPT
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def main(argv: list[str] | None = None) -> int:
    """Run, print one line, optionally write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("script", type=Path, nargs="?", default=ROOT / "examples" / "train.py")
    parser.add_argument("--warmup", type=int, default=20, help="unprofiled steps (default: 20)")
    parser.add_argument("--python", default=sys.executable, help="the interpreter that has torch")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, metavar="FILE", help="where the figures go as JSON")
    words = sys.argv[1:] if argv is None else argv
    place = words.index("--") if "--" in words else len(words)
    own, script_args = parser.parse_args(words[:place]), words[place + 1:]
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(ROOT / "scripts" / "profile_kernel.py"), str(own.script.resolve()), "--json", "--python", own.python,
                   "--device", own.device, "--warmup", str(own.warmup), "--out", f"{folder}/out", "--", *script_args]
        done = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)
        if done.returncode:
            print(done.stderr or done.stdout, file=sys.stderr)
            return done.returncode
        profile = json.loads(Path(json.loads(done.stdout)["profile"]).read_text(encoding="utf-8"))
    steps, meta = profile["script"], profile["capture_metadata"]
    row = {"script": own.script.name, "device": meta["device_name"], "unprofiled_us": _us(steps["unprofiled_step"]),
           "unprofiled_samples": steps["unprofiled_samples"], "profiled_us": _us(steps["profiled_step"]),
           "overhead_us": _us(steps["overhead_per_step"]), "ratio": steps["overhead_ratio"], "note": steps["overhead_note"]}
    words = {name: "n/a" if value is None else f"{value:.3f}" if isinstance(value, float) else value for name, value in row.items()}
    print("  ".join(f"{name}={value}" for name, value in words.items()))
    if own.out:
        own.out.parent.mkdir(parents=True, exist_ok=True)
        own.out.write_text(json.dumps(row, indent=1) + "\n", encoding="utf-8")
    return 0


def _us(figure: dict[str, float] | None) -> float | None:
    return None if figure is None else figure["value"] / 1000


if __name__ == "__main__":
    sys.exit(main())

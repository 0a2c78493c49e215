"""How many replays each variant of the default counter set takes on this GPU, and how large its report is.

    PYTHONPATH=src python3 tests/gpu/counters/count_passes.py [--python PYTHON] [--ncu NCU] [VARIANT ...]

One small kernel (a torch softmax) a variant. `default` is what `--counters default` collects; `default-X` leaves a family out, so the
difference is what X costs; `alone-X` collects X alone; the others are alternatives to choose from. Prints one line a variant:
name, metrics, passes, report size, seconds. PYTHON has torch; this program needs kernelwright and ncu-report.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import ncu_report  # type: ignore[import-untyped]

from kernelwright.roofline.counters import metric_names, names_of, roles

PROGRAM = """
import torch
x = torch.randn(512, 1024, device="cuda")
torch.softmax(x, 1); torch.cuda.synchronize()
torch.cuda.cudart().cudaProfilerStart(); torch.softmax(x, 1); torch.cuda.synchronize(); torch.cuda.cudart().cudaProfilerStop()
"""
FAMILIES = {
    "stalls": tuple(role for role in roles("default") if role.startswith("stall_")),
    "sass_flops": tuple(role for role in roles("default") if role.startswith("flops_")),
    "sass_sectors": ("load_bytes_per_sector", "store_bytes_per_sector"),
    "tensor_ops": tuple(role for role in roles("default") if role.startswith(("tensor_flops", "tensor_ops"))),
    "pipes": ("tensor_pct", "fma_pct", "alu_pct", "fp64_pct"),
    "shared": ("shared_conflicts", "shared_wavefronts", "bank_conflict_pct", "shared_pipe_pct"),
    "local": ("local_bytes",), "l2": ("l2_bytes", "l2_hit_pct"), "l1": ("l1_bytes", "l1_hit_pct"),
    "dram": ("dram_pct", "dram_read_bytes", "dram_write_bytes"),
    "schedulers": ("issue_pct", "instructions", "occupancy_pct", "resident_warps"),
}
PCSAMP = "group:smsp__pcsamp_warp_stall_reasons"
RATIO = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
FEW = ("long_scoreboard", "short_scoreboard", "barrier", "mio_throttle")


def variants(chip: str) -> dict[str, tuple[str, ...]]:
    """Name -> metrics."""
    default = metric_names(chip)

    def without(*families: str) -> tuple[str, ...]:
        kept = [role for role in roles("default") if not any(role in FAMILIES[family] for family in families)]
        left = set(names_of(kept, chip))
        if "stalls" in families:  # the stall formula also reads the schedulers' figures, which other roles have
            left -= {name for name in default if "issue_stalled" in name}
        return tuple(name for name in default if name in left)

    base = without("stalls")
    found = {"default": default, "full": metric_names(chip, "full"), "time_alone": ("gpu__time_duration.sum",),
             "pcsamp_for_stalls": (*base, PCSAMP), "four_stalls": (*base, *(RATIO.format(reason) for reason in FEW)),
             "no_sass": without("sass_flops", "sass_sectors"), "with_sass_spilling": (*default, "sass__inst_executed_register_spilling"),
             "sectors_per_request_for_sass_sectors": (*without("sass_sectors"), *names_of(("sectors_per_load", "sectors_per_store"), chip))}
    found |= {f"default-{family}": without(family) for family in FAMILIES}
    return found | {f"alone-{family}": names_of(family_roles, chip) for family, family_roles in FAMILIES.items()}


def measure(name: str, metrics: tuple[str, ...], options: argparse.Namespace, folder: Path) -> str:
    """One line of the table."""
    program, report = folder / "program.py", folder / f"{name}.ncu-rep"
    program.write_text(PROGRAM)
    started = time.monotonic()
    done = subprocess.run([options.ncu, "--clock-control", "none", "--profile-from-start", "off", "-f", "-o", str(report), "--metrics",
                           ",".join(metrics), options.python, str(program)], capture_output=True, text=True, timeout=180, check=False)
    seconds = time.monotonic() - started
    if done.returncode != 0 or not report.is_file():
        return f"{name:40} {len(metrics):4} metrics  FAILED rc {done.returncode}: {(done.stdout + done.stderr).strip()[-300:]}"
    action = ncu_report.load_report(str(report))[0][0]
    passes = action.metric_by_name("profiler__replayer_passes").value()
    found = {metric: action.metric_by_name(metric) for metric in metrics if not metric.startswith("group:")}
    lacking = [metric for metric, entry in found.items() if entry is None or entry.value() is None]
    return (f"{name:40} {len(metrics):4} metrics {int(passes):3} passes {report.stat().st_size / 1e6:7.2f} MB {seconds:5.1f} s"
            + (f"  no value: {', '.join(lacking)}" if lacking else ""))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--ncu", default="ncu")
    parser.add_argument("--chip", default="gh100")
    parser.add_argument("--list", action="store_true", help="print the variants and their metrics, and measure nothing")
    parser.add_argument("variants", nargs="*")
    options = parser.parse_args()
    every = variants(options.chip)
    for name in options.variants or every:
        if options.list:
            print(name, ",".join(every[name]))
            continue
        with tempfile.TemporaryDirectory() as folder:
            print(measure(name, every[name], options, Path(folder)), flush=True)


if __name__ == "__main__":
    main()

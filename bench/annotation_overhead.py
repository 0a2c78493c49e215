"""Annotation mode, all in, against one plain process of the same workload; both begin with empty caches.

Plain: a process that starts, loads, compiles and makes two iterations. Annotation: `profile_kernel WORKLOAD` from its start to its end,
so the timeline's process, the counter process and kernelwright's own work. Each has a HOME and cache folders of its own that are empty.
The aim is at most 2.4 times, with counters on 95% and attribution on 99% of kernel time.

    python bench/annotation_overhead.py [--workloads WORKLOAD[@VERSION][:COMPILE_MODE] ...] [--all-launches] [--limit SECONDS]
                                        [--repeat N] [--byte-code warm|as-is] [--out FILE]

Python's byte code is no cache that either of the two should have to fill: where none stands beside torch, both are given the same folder
with that of all installed packages, made before (--byte-code warm). With as-is the environment stays as it is. The first line tells how
long `import torch` takes both ways.

--all-launches replays every launch of a step as well: how much longer that takes, and for each counter how far the values that launches
inherited are from those measured on them: the median relative difference over launches of at least 1% of the step's kernel time (where no
launch has as much, over those of one kernel and configuration that have as much together). Left out are shares of a peak below 1%, and
amounts below 1% of the largest seen in the step (their peaks are not in the report). Beside it the same for launches measured in both
runs, which is what measuring twice differs by.

One line of JSON a workload, as soon as it is measured; on stderr where the seconds went. Needs a GPU and the development environment
(make bench's).
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
AIM, COUNTERS_AIM_PCT, ATTRIBUTION_AIM_PCT = 2.4, 95.0, 99.0
HEAVY_SHARE, SMALL_SHARE, NOTABLE = 0.01, 0.01, 0.02
DEFAULT = ("conv_block", "gpt2:inductor", "lstm_sequence_encoder", "sdpa_attention", "triton_softmax@v2", "train_mlp_step")
COMPILE_LIMIT_S = 240.0
BESIDE = """
import importlib.util, os
spec = importlib.util.find_spec("torch")
print(os.path.exists(spec.cached))
print(os.path.dirname(os.path.dirname(spec.origin)))
"""
PLAIN = """
import importlib.util, sys
path, version, mode = sys.argv[1:4]
sys.argv = [path]
import torch
spec = importlib.util.spec_from_file_location("workload", path)
module = sys.modules["workload"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
if version:
    model, data = module.VERSIONS[version], module.get_inputs()
else:
    model, data = module.get_model_and_input()
run = model if mode == "eager" else torch.compile(model, mode="reduce-overhead" if mode == "cudagraphs" else None)
def call():
    return run(**data) if isinstance(data, dict) else run(*data) if isinstance(data, (tuple, list)) else run(data)
training = getattr(model, "training", False)
for _ in range(2):
    if training:
        call().backward()
    else:
        call()
torch.cuda.synchronize()
"""


def main(argv: list[str] | None = None) -> int:
    """Measure each workload; with --check exit 1 when one misses an aim."""
    args = _arguments(argv)
    with tempfile.TemporaryDirectory(prefix="annotation-overhead-byte-code-") as folder:
        return run(args, *byte_code(args, Path(folder)))


def run(args: argparse.Namespace, variables: dict[str, str | None], told: dict[str, Any]) -> int:
    """All workloads. variables: of both processes; told: of the byte code."""
    rows = []
    print(json.dumps(told), flush=True)
    for name in args.workloads or args.names or DEFAULT:
        try:
            row = measure(name, args, variables)
        except (subprocess.SubprocessError, RuntimeError, OSError) as error:
            row = {"workload": name, "error": str(error)[-800:]}
        rows.append(row)
        print(json.dumps(row), flush=True)
        if "error" not in row:
            say(name, row)
    if args.out is not None:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps({"benchmark": "annotation_overhead", "aim_ratio": AIM, **told, "rows": rows}, indent=1) + "\n")
    return 1 if args.check and not all(row.get("kept") for row in rows) else 0


def byte_code(args: argparse.Namespace, folder: Path) -> tuple[dict[str, str | None], dict[str, Any]]:
    """Variables for both processes, and what there is to tell: seconds of `import torch`, with whose byte code."""
    as_is = _import_s(args.python, {})
    beside = subprocess.run([args.python, "-c", BESIDE], capture_output=True, text=True, check=True).stdout.split("\n")
    told: dict[str, Any] = {"import_torch_s": as_is, "byte_code_beside_torch": beside[0] == "True",
                            "PYTHONDONTWRITEBYTECODE": os.environ.get("PYTHONDONTWRITEBYTECODE", "")}
    if args.byte_code == "as-is":
        return {}, {**told, "byte_code": "as it is, for both processes"}
    there = beside[0] == "True"
    variables: dict[str, str | None] = {"PYTHONDONTWRITEBYTECODE": None, **({} if there else {"PYTHONPYCACHEPREFIX": str(folder)})}
    begun, folders = time.perf_counter(), {str(ROOT / "src")}
    if not there:
        folders |= {beside[1], *(path for path in sys.path if path.endswith("-packages") and Path(path).is_dir())}
    # Files for other versions of Python, which packages ship as tests, do not compile: the status says nothing.
    subprocess.run([args.python, "-m", "compileall", "-q", "-j", "0", *sorted(folders)], env=_with(dict(os.environ), variables),
                   capture_output=True, timeout=COMPILE_LIMIT_S, check=False)
    compiled_s = round(time.perf_counter() - begun, 1)
    return variables, {**told, "import_torch_with_byte_code_s": _import_s(args.python, variables), "compiled_in_s": compiled_s,
                       "byte_code": "where it belongs, for both processes" if there else
                       "in one folder for both processes, filled before (PYTHONPYCACHEPREFIX)"}


def _import_s(python: str, variables: dict[str, str | None]) -> list[float]:
    """Twice: the first one may read from a cold disk."""
    taken = []
    for _ in range(2):
        begun = time.perf_counter()
        subprocess.run([python, "-c", "import torch"], env=_with(dict(os.environ), variables), check=True, timeout=120)
        taken.append(round(time.perf_counter() - begun, 2))
    return taken


def _with(environment: dict[str, str], variables: dict[str, str | None]) -> dict[str, str]:
    mixed = {**environment, **variables}
    return {name: value for name, value in mixed.items() if value is not None}


def say(name: str, row: dict[str, Any]) -> None:
    """A line on stderr a workload: where the seconds of the annotation went."""
    parts = ", ".join(f"{part} {value:.1f}" for part, value in row["stages_s"].items())
    inner = [f"{which}: " + ", ".join(f"{part} {value:.1f}" for part, value in row[key].items())
             for which, key in (("first process", "first_phases_s"), ("counter process", "counter_phases_s"))]
    print(f"{name}: plain {row['plain_s']:.1f} s, annotation {row['annotation_s']:.1f} s, {row['ratio']:.2f} times\n  {parts}\n  "
          + "\n  ".join(inner), file=sys.stderr, flush=True)


def measure(name: str, args: argparse.Namespace, variables: dict[str, str | None]) -> dict[str, Any]:
    """One row. name: an example or a file, with its version and compile mode. variables: of both processes."""
    rest, _, mode = name.partition(":")
    stem, _, version = rest.partition("@")
    path = Path(stem) if stem.endswith(".py") else ROOT / "examples" / f"{stem}.py"
    mode, ends = mode or "eager", time.monotonic() + args.limit
    with tempfile.TemporaryDirectory(prefix="annotation-overhead-") as scratch:
        place = Path(scratch)
        plain, whole = [], []
        for turn in range(args.repeat):
            home = fresh(place / f"plain-{turn}", variables)
            plain.append(_timed([args.python, "-c", PLAIN, str(path.resolve()), version, mode], home, place, ends))
        out = place / "out"
        command = [sys.executable, "-m", "kernelwright", "profile_kernel", str(path.resolve()), *([version] if version else []), "--json",
                   "--python", args.python, "--compile-mode", mode, "--out", str(out)]
        for turn in range(args.repeat):
            home, launched = fresh(place / f"annotation-{turn}", variables), time.time()
            whole.append(_timed(command, home, place, ends))
        plain_s, annotation_s = statistics.median(plain), statistics.median(whole)
        row = {"workload": name, "plain_s": round(plain_s, 2), "annotation_s": round(annotation_s, 2),
               "ratio": round(annotation_s / plain_s, 3), "plain_all_s": [round(one, 2) for one in plain],
               "annotation_all_s": [round(one, 2) for one in whole], "stages_s": stages(out, launched, whole[-1]), **described(out)}
        row["kept"] = (row["ratio"] <= AIM and (row["counters_pct"] or 0) >= COUNTERS_AIM_PCT
                       and row["attributed_pct"] >= ATTRIBUTION_AIM_PCT)
        if args.all_launches and row["counters_pct"]:
            row.update(all_launches(out, args.python, home, place, max(1.0, ends - time.monotonic()), annotation_s))
    return row


def stages(out: Path, launched: float, total_s: float) -> dict[str, float]:
    """Where the seconds of the last annotation went. start: until our first line of a profile; report: from the document to the end.

    first_process and counters are whole processes with their start and end; the latter counts from the end of the former.
    """
    params = json.loads((out / "params.json").read_text())
    spent = params["stages_s"]
    inner_s = sum(spent.get(name, 0.0) for name in ("first_process", "peaks", "counters", "loading"))
    start_s = params["analysed_at_unix_s"] - launched - spent["prepare"] - spent["capture"] - spent["analysis"]
    parts = {"start": start_s, "prepare": spent["prepare"], "first_process": spent["first_process"], "peaks": spent["peaks"],
             "counters": spent["counters"], "loading": spent["loading"], "locks_and_clocks": spent["capture"] - inner_s,
             "analysis": spent["analysis"], "report": launched + total_s - params["analysed_at_unix_s"]}
    return {name: round(value, 2) for name, value in parts.items()}


def described(out: Path) -> dict[str, Any]:
    """What the profile says of itself."""
    document = json.loads((out / "profile.json").read_text())
    params, line, counters = json.loads((out / "params.json").read_text()), document["timeline"], document["counters"]
    counted = json.loads((out / "raw" / "counters" / "result.json").read_text())["phases_s"] if counters else {}
    return {
        "attributed_pct": round(100 * line["attributed_ns"] / line["measured_ns"], 3),
        "counters_pct": counters and round(counters["time_share_pct"], 2), "launches": counters and counters["launches"],
        "launches_replayed": counters and counters["launches_measured"], "passes": counters and counters["passes"],
        "counter_process_s": counters and counters["seconds"], "disagreements": counters and counters["disagreements"],
        "notes": counters and counters["notes"], "no_counters": document["no_counters"],
        "first_phases_s": {name: round(value, 2) for name, value in params["phases_s"].items()},
        "counter_phases_s": {name: round(value, 2) for name, value in counted.items()},
    }


def all_launches(out: Path, python: str, environment: dict[str, str], cwd: Path, limit_s: float, annotation_s: float) -> dict[str, Any]:
    """ncu over every launch of a step, by the same program, and how far inherited counters are from measured ones."""
    sys.path.insert(0, str(ROOT / "src"))
    from kernelwright.attribute.counters import attach_counters
    from kernelwright.attribute.signatures import plan_counters
    from kernelwright.capture.interpreter import Interpreter
    from kernelwright.capture.ncu import run_ncu
    from kernelwright.capture.nsight import find_ncu
    from kernelwright.capture.system_view import real_system
    from kernelwright.model.capture import ProbeRequest
    from kernelwright.model.profile import Metrics, Profile
    from kernelwright.readers.kineto import read_kineto
    from kernelwright.readers.ncu import read_ncu

    profile = Profile.load(out)
    raw = out / "raw"
    folder = out / "all"
    folder.mkdir()
    asked = json.loads((raw / "counters" / "request.json").read_text())
    request = ProbeRequest.model_validate({**asked, "out_dir": str(folder)})
    names = sorted({name for kernel in _kernels(profile.operators) for name in kernel.metrics.raw})
    os.environ.update(environment)  # the same caches
    run = run_ncu(request, Interpreter(Path(python), "", "", "--python"), tool=find_ncu(real_system()), metrics=names, op_ids=None,
                  report=folder / "all.ncu-rep", cwd=cwd, timeout_s=limit_s)
    if run.report is None:
        return {"all_launches": None, "all_launches_why": run.denied and run.denied.reason}
    bare = [operator.model_copy(update={"kernels": tuple(kernel.model_copy(update={"metrics": Metrics()}) for kernel in operator.kernels)})
            for operator in profile.operators]
    plan = dataclasses.replace(plan_counters(read_kineto(raw / "trace.json.gz")), launch_count=None)
    direct, _, counted = attach_counters(bare, profile.unattributed_kernels, plan, read_ncu(run.report))
    return {"all_launches": run.launches, "all_launches_s": round(run.seconds, 2), "all_launches_passes": run.passes,
            "all_launches_process_ratio": round(run.seconds / profile.counters.seconds, 2) if profile.counters else None,
            "all_launches_total_ratio": round((annotation_s - (profile.counters.seconds if profile.counters else 0) + run.seconds)
                                              / annotation_s, 2),
            "all_launches_disagreements": len(counted.disagreements), **compared(profile.operators, direct)}


def compared(inherited: Any, direct: Any) -> dict[str, Any]:
    """Per counter the median relative difference, of launches that inherited it and of those measured twice."""
    first = [kernel for operator in inherited if operator.step == 0 for kernel in operator.kernels if kernel.category == "kernel"]
    counted, total_ns = [kernel for kernel in first if kernel.metrics.origin is not None], sum(kernel.duration_ns for kernel in first)
    heavy = [kernel for kernel in counted if kernel.duration_ns >= HEAVY_SHARE * total_ns]
    if not heavy:
        kind_ns: dict[tuple[object, ...], int] = defaultdict(int)
        for kernel in counted:
            kind_ns[_kind(kernel)] += kernel.duration_ns
        heavy = [kernel for kernel in counted if kind_ns[_kind(kernel)] >= HEAVY_SHARE * total_ns]
    measured = {kernel.kernel_id: kernel for kernel in _kernels(direct) if kernel.metrics.origin == "measured"}
    pairs = [(kernel, measured[kernel.kernel_id]) for kernel in heavy if kernel.kernel_id in measured]
    result: dict[str, Any] = {"compared_launches": sum(one.metrics.origin == "propagated" for one, _ in pairs),
                              "twice_measured_launches": sum(one.metrics.origin == "measured" for one, _ in pairs)}
    for origin, label in (("propagated", "inherited"), ("measured", "twice_measured")):
        medians = _medians([pair for pair in pairs if pair[0].metrics.origin == origin])
        result[f"{label}_median_pct"] = {name: round(100 * value, 2) for name, value in medians.items()}
        result[f"{label}_over_2_pct"] = {name: round(100 * value, 2) for name, value in medians.items() if value > NOTABLE}
        result[f"{label}_worst_median_pct"] = round(100 * max(medians.values()), 2) if medians else None
    return result


def _kind(kernel: Any) -> tuple[object, ...]:
    return kernel.kernel_name, kernel.grid, kernel.block


def _medians(pairs: list[tuple[Any, Any]]) -> dict[str, float]:
    names = sorted({name for one, other in pairs for name in one.metrics.raw if name in other.metrics.raw})
    medians = {}
    for name in names:
        values = [(one.metrics.raw[name], other.metrics.raw[name]) for one, other in pairs
                  if name in one.metrics.raw and name in other.metrics.raw]
        least = 1.0 if "pct" in name else SMALL_SHARE * max(abs(value) for pair in values for value in pair)
        told = [abs(one - other) / max(abs(other), 1e-30) for one, other in values if max(abs(one), abs(other)) >= least > 0]
        if told:
            medians[name] = statistics.median(told)
    return medians


def _kernels(operators: Any) -> Any:
    return (kernel for operator in operators for kernel in operator.kernels)


def fresh(home: Path, variables: dict[str, str | None]) -> dict[str, str]:
    """An environment with these variables (None: without) whose HOME and caches are empty folders of their own."""
    (home / "tmp").mkdir(parents=True)
    hidden = ("XDG_", "TORCHINDUCTOR", "TRITON_", "KERNELWRIGHT_CACHE")
    kept = _with({name: value for name, value in os.environ.items() if not name.startswith(hidden)}, variables)
    return {**kept, "HOME": str(home), "TMPDIR": str(home / "tmp"), "XDG_CACHE_HOME": str(home / ".cache"),
            "TORCHINDUCTOR_CACHE_DIR": str(home / "inductor"), "TRITON_CACHE_DIR": str(home / "triton"),
            "CUDA_CACHE_PATH": str(home / "nv"), "KERNELWRIGHT_CACHE": str(home / "kernelwright"),
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])}


def _timed(command: list[str], environment: dict[str, str], cwd: Path, ends: float) -> float:
    begun = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, cwd=cwd, env=environment, check=False,
                          timeout=max(1.0, ends - time.monotonic()))
    elapsed_s = time.perf_counter() - begun
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]} ended with {done.returncode}: {(done.stdout + done.stderr).strip()[-600:]}")
    return elapsed_s


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="WORKLOAD", help=f"examples or files (default: {', '.join(DEFAULT)})")
    parser.add_argument("--workloads", nargs="+", metavar="WORKLOAD", help="the same, as an option")
    parser.add_argument("--repeat", type=int, default=1, metavar="N", help="measure each N times; the medians count (default: 1)")
    parser.add_argument("--byte-code", choices=("warm", "as-is"), default="warm", help="Python's byte code (default: there for both)")
    parser.add_argument("--all-launches", action="store_true", help="also replay every launch, and compare")
    parser.add_argument("--limit", type=float, default=180.0, metavar="SECONDS", help="longest time for one workload (default: 180)")
    parser.add_argument("--python", default=sys.executable, help="the interpreter that has torch")
    parser.add_argument("--out", type=Path, metavar="FILE", help="where the figures go as JSON")
    parser.add_argument("--check", action="store_true", help="exit 1 when a workload misses an aim")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())

"""judge WORKLOAD CANDIDATE.py: correctness, A/B timing and audit of one candidate; a verdict. Also of a bundle, or of many candidates."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, TypeVar, get_args

from ..judge import JudgeOptions, judge
from ..judge.bundle import SUFFIX, Against, Bundle, against, is_bundle, read_bundle, write_bundle
from ..judge.options import MIN_ROUNDS, USUAL_TIMING_S, SanitizerTool
from ..judge.sources import collect
from ..model.errors import EXIT_NOT_ACCEPTABLE, EXIT_OK, BadInput, Interrupted, KernelwrightError, NotWritable
from ..model.files import leave_error, write_json_atomic, write_text_atomic
from ..model.profile import ClockReading
from ..model.saying import Say
from ..model.verdict import ACCEPTABLE, Verdict
from ..model.workload import WorkloadRef
from ..pipeline.source import check_source
from ..pipeline.stored import safe_name
from ..pipeline.target import refuse_script, resolve_target
from ..report.templates import render
from .common import Answer, add_run_options, clocks_of, device_of, name, positive_count, run_clocks, seconds

HELP = "judge one candidate: correctness, timing, audit"
DESCRIPTION = """Runs the candidate and its workload in two processes, on fresh inputs, and gives one verdict:
FASTER, SLOWER, SAME or AMBIGUOUS (exit 0), WRONG, CHEAT or FAILED (exit 5).
`WORKLOAD CANDIDATE.py` judges one, `FILE.tar.xz` judges a bundle again, `REF.py NEW.py ... --kernelbench`
several, with KernelBench's fields."""
TOOLS: tuple[SanitizerTool, ...] = get_args(SanitizerTool)
Done = TypeVar("Done")
OF_BUNDLE = {"precision": "--precision", "rounds": "--rounds", "max_timing": "--max-timing", "seed": "--seed", "version": "--version",
             "bundle": "--bundle", "model_name": "--model-name"}
"""What a bundle decides by itself."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """WORKLOAD, CANDIDATE, --precision and the shared options."""
    parser.add_argument("workload", metavar="WORKLOAD", help="workload file, or a kernel of the project file; or a bundle (FILE.tar.xz)")
    parser.add_argument("candidate", metavar="CANDIDATE.py", type=Path, nargs="*",
                        help="file with ModelNew, optimize(model, inputs), BACKEND, or a function with the versions' signature; with "
                             "--kernelbench several, or folders")
    parser.add_argument("--version", help="version to compare with (a workload with versions)")
    parser.add_argument("--precision", choices=("equal", "tf32", "bf16"), help="lowest precision that the candidate may declare "
                        "(default: equal)")
    parser.add_argument("--rounds", type=positive_count, metavar="N",
                        help=f"fresh inputs to compare outputs on, at least 3 (default: {MIN_ROUNDS})")
    parser.add_argument("--max-timing", type=seconds, metavar="TIME", help=f"longest time spent timing (default: {USUAL_TIMING_S:g}s)")
    parser.add_argument("--seed", type=_seed, metavar="N", help="repeat a judgement with the seed that its verdict names (default: secret)")
    parser.add_argument("--bundle", type=_bundle, metavar="FILE.tar.xz", help="write the judgement there, to be judged again elsewhere")
    parser.add_argument("--sanitize", choices=(*TOOLS, "all"), nargs="?", const="memcheck",
                        help="run one call of a right candidate under compute-sanitizer too (NVIDIA GPUs; alone: memcheck)")
    parser.add_argument("--kernelbench", action="store_true",
                        help="answer with the fields of KernelBench's results; takes several candidates and folders of them")
    parser.add_argument("--model-name", type=name, metavar="NAME", help="name in reports (default: the file's)")
    add_run_options(parser)


def run(args: argparse.Namespace, params: dict[str, str], say: Say) -> Answer:
    """Judge, write verdict.json and verdict.md; a verdict of WRONG, CHEAT or FAILED is exit 5."""
    if is_bundle(Path(args.workload)):
        return _again_from(args, params, say)
    if not args.candidate:
        raise BadInput("usage", "the following arguments are required: CANDIDATE.py", where="judge", fix="see judge --help")
    workload = resolve_target(args.workload, args.version, params, args.model_name)
    refuse_script(workload, "judge")
    args.device = device_of(args, workload)
    if args.rounds is not None and args.rounds < MIN_ROUNDS:
        raise BadInput("usage", "--rounds must be at least 3", where="--rounds", fix="leave it out, or ask for 3 or more")
    if args.kernelbench:
        from .kernelbench import judge_all

        return judge_all(args, workload, say)
    if len(args.candidate) > 1:
        raise BadInput("usage", f"{len(args.candidate)} candidates are named, and judge takes one", where="judge",
                       fix="judge them one by one, or all with --kernelbench")
    candidate: Path = args.candidate[0]
    check_source(candidate, "candidate")
    sources = collect(workload, candidate) if args.bundle else None
    folder = result_folder(args.out, workload)
    options = options_of(args, folder)
    verdict = _judged(args, workload, candidate, options, folder, say)
    if sources is not None:
        _or_leave(folder, lambda: write_bundle(args.bundle, sources, workload, options, verdict))
    return _answer(verdict, workload, folder, again(verdict, workload, args), bundle=args.bundle)


def _again_from(args: argparse.Namespace, params: dict[str, str], say: Say) -> Answer:
    """Judge a bundle: its code, its options and its seed, on this machine."""
    taken = [option for field, option in OF_BUNDLE.items() if getattr(args, field) is not None]
    taken += ["CANDIDATE.py"] * bool(args.candidate) + ["--kernelbench"] * args.kernelbench
    taken += [f"--{name}" for name in params]
    if taken:
        raise BadInput("usage", f"{taken[0]} can't be given with a bundle, which decides that", where=args.workload, fix="leave it out")
    bundle = read_bundle(Path(args.workload))
    folder = result_folder(args.out, WorkloadRef(path=bundle.path, name=bundle.contents.name))
    workload, candidate = bundle.extract(folder / "bundle")
    say(bundle.announce())
    options = bundle.options(**_of_machine(args, folder))
    verdict = _judged(args, workload, candidate, options, folder, say)
    return _answer(verdict, workload, folder, _again_bundle(bundle, args), compared=against(bundle.verdict, verdict))


def options_of(args: argparse.Namespace, folder: Path) -> JudgeOptions:
    """What the command line asks for."""
    own = {"precision": args.precision, "rounds": args.rounds, "seed": args.seed, "max_timing_s": args.max_timing}
    return JudgeOptions.model_validate({**{field: value for field, value in own.items() if value is not None}, **_of_machine(args, folder)})


def _of_machine(args: argparse.Namespace, folder: Path) -> dict[str, object]:
    tools = () if args.sanitize is None else TOOLS if args.sanitize == "all" else (args.sanitize,)
    return {"device": args.device, "python": args.python, "timeout_s": args.timeout or 600.0, "keep_dir": folder / "raw", "sanitize": tools}


def _judged(args: argparse.Namespace, workload: WorkloadRef, candidate: Path, options: JudgeOptions, folder: Path, say: Say) -> Verdict:
    def work() -> Verdict:
        with run_clocks(args, workload, say) as clocks:
            verdict = judge(workload, candidate, options, say=say)
        return verdict.model_copy(update={"clocks": clocks.reading()})

    return _or_leave(folder, work)


def _or_leave(folder: Path, work: Callable[[], Done]) -> Done:
    """`work()`; what stops it is left in the folder as error.json."""
    try:
        return work()
    except KeyboardInterrupt:
        leave_error(folder, Interrupted(str(folder)))
        raise
    except (KernelwrightError, OSError) as error:
        fault = error if isinstance(error, KernelwrightError) else NotWritable(error, error.filename or folder)
        leave_error(folder, fault)
        raise fault from error.__cause__


def _seed(text: str) -> int:
    """argparse type: what a verdict calls its seed."""
    if text.isdigit() and int(text) < 2**48:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a whole number below 2**48")


def _bundle(text: str) -> Path:
    """argparse type: the file of a bundle, which is known by its ending."""
    if text.endswith(SUFFIX) and len(text) > len(SUFFIX) and "\0" not in text:
        return Path(text).absolute()
    raise argparse.ArgumentTypeError(f"{text!r} does not end in {SUFFIX}")


def write_verdict(folder: Path, verdict: Verdict, workload: WorkloadRef, command: str, compared: Against | None = None) -> Path:
    """verdict.json and verdict.md in the folder; the page's path."""
    write_json_atomic(folder / "verdict.json", verdict.model_dump(mode="json"))
    return write_text_atomic(folder / "verdict.md", page_of(verdict, workload, command, compared))


def page_of(verdict: Verdict, workload: WorkloadRef, command: str, compared: Against | None = None) -> str:
    """verdict.md: what failed, then every check in one table. command: repeats the judgement."""
    clocks = verdict.clocks or ClockReading(requested="none", locked=False)
    return render("verdict.md.j2", verdict=verdict, workload=workload, clocks=clocks, again=command, against=compared)


def _answer(verdict: Verdict, workload: WorkloadRef, folder: Path, command: str, *, bundle: Path | None = None,
            compared: Against | None = None) -> Answer:
    report = write_verdict(folder, verdict, workload, command, compared)
    data: dict[str, Any] = {"out_dir": str(folder), "verdict": verdict.verdict, "speedup": verdict.speedup,
            "interval": list(verdict.interval) if verdict.interval else None, "reasons": list(verdict.reasons), "report": str(report)}
    lines = [verdict.verdict, *(f"- {reason}" for reason in verdict.reasons)]
    if bundle is not None:
        data["bundle"] = str(bundle)
    if compared is not None:
        data["against"] = compared.model_dump(mode="json")
        lines.append(f"- {compared.words}")
    return Answer(data, "\n".join(lines), exit_of(verdict), tail=f"\nreport: {report}")


def exit_of(verdict: Verdict) -> int:
    """5 for WRONG, CHEAT and FAILED."""
    return EXIT_OK if verdict.verdict in ACCEPTABLE else EXIT_NOT_ACCEPTABLE


def again(verdict: Verdict, workload: WorkloadRef, args: argparse.Namespace) -> str:
    """The command that repeats this judgement with the same inputs and weights."""
    words = [*_command(), str(workload.path), verdict.candidate, "--seed", str(verdict.seed), "--precision", verdict.precision]
    words += ["--version", workload.version] if workload.version else []
    words += ["--rounds", str(args.rounds or MIN_ROUNDS), "--max-timing", f"{args.max_timing or USUAL_TIMING_S:g}s"]
    words += _machine_words(args, workload)
    return shlex.join([*words, *(f"--{name}={value}" for name, value in workload.params.items())])


def _again_bundle(bundle: Bundle, args: argparse.Namespace) -> str:
    return shlex.join([*_command(), str(bundle.path.absolute()), *_machine_words(args, WorkloadRef(path=bundle.path, name="bundle"))])


def _machine_words(args: argparse.Namespace, workload: WorkloadRef) -> list[str]:
    words = ["--device", args.device, "--clocks", clocks_of(args, workload)]
    words += [f"--sanitize={args.sanitize}"] if args.sanitize else []
    words += ["--python", args.python] if args.python else []
    return words + (["--timeout", f"{args.timeout:g}s"] if args.timeout else [])


def _command() -> list[str]:
    """How this very program was started: the script by its full path, or `kernelwright judge`."""
    started = Path(sys.argv[0])
    if started.suffix == ".py" and started.stem == "judge":
        return ["python3", str(started.absolute())]
    return ["kernelwright", "judge"]


def result_folder(out: Path | None, workload: WorkloadRef) -> Path:
    """The folder of this judgement, made, without an older one's answers. Raises NotWritable."""
    stamp = datetime.now(timezone.utc).strftime("%Y%m%d-%H%M%S-%f")
    folder = (out or Path.cwd() / "out" / "judge" / safe_name(workload.name) / stamp).absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for stale in ("error.json", "verdict.json", "verdict.md", "kernelbench.json"):
            (folder / stale).unlink(missing_ok=True)
    except OSError as error:
        raise NotWritable(error, folder) from error
    return Path(os.path.realpath(folder))

"""What all verbs share: options, the answer they give, and how workload parameters are split off."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..capture.clocks import DeviceClocks, torch_load, valid_request
from ..capture.interpreter import find_interpreter
from ..model.errors import BadInput
from ..model.saying import Say
from ..model.workload import Device, WorkloadRef

MAX_DURATION_S = 30 * 24 * 3600
MAX_NAME_CHARACTERS = 500
_PARAM = re.compile(r"--([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)


@dataclass(frozen=True)
class Answer:
    """What a verb gives back: `data` for --json (`status` is added), `text` for a person, and the exit code."""

    data: dict[str, Any]
    text: str
    exit_code: int = 0
    tail: str = field(default="")
    """One closing line on stderr, e.g. where the artifacts are."""


def add_run_options(parser: argparse.ArgumentParser) -> None:
    """Options of every verb that runs a workload."""
    group = parser.add_argument_group("running")
    group.add_argument("--device", choices=("auto", "cuda", "cpu"),
                       help="where to run; auto: the GPU if there is one (default: the project file's, else auto)")
    group.add_argument("--out", type=folder, metavar="DIR", help="folder for the results (default: a new one under out/)")
    group.add_argument("--clocks", type=clocks, metavar="none|lock|MHZ",
                       help="GPU clocks: left alone, locked where the GPU holds them under load, or locked at MHZ (default: the project "
                            "file's, else none)")
    group.add_argument("--python", metavar="PATH", help="the interpreter that has the workload's torch")
    group.add_argument("--timeout", type=seconds, metavar="TIME", help="longest time the workload may take, e.g. 90s or 10m")


def add_profile_options(parser: argparse.ArgumentParser) -> None:
    """Options of every verb that profiles."""
    group = parser.add_argument_group("profiling")
    group.add_argument("--warmup", type=count, metavar="N", help="warm-up calls (default: until stable)")
    group.add_argument("--steps", type=positive_count, metavar="N",
                       help="profiled steps or timing samples (default: annotation 5, event as many as needed)")
    group.add_argument("--baseline", metavar="DIR|VERSION", help="profile to compare with")
    group.add_argument("--ncu-executable", metavar="PATH", help="Nsight Compute's ncu")
    group.add_argument("--nsys-executable", metavar="PATH", help="Nsight Systems' nsys")
    group.add_argument("--ncu-sudo", action="store_true", help="run ncu under sudo, which must not ask for a password")
    group.add_argument("--ncu-budget", type=seconds, metavar="TIME",
                       help="longest time for counters, e.g. 30s: the heaviest launches that fit (default: those of 95%% of kernel time)")
    group.add_argument("--counters", choices=("default", "full", "none"), default="default",
                       help="annotation on a GPU: hardware counters to collect in a second process, under ncu")
    group.add_argument("--compile-mode", choices=("eager", "inductor", "cudagraphs"), default="eager",
                       help="profile the workload as it is, or under torch.compile")
    group.add_argument("--model-name", type=name, metavar="NAME", help="name in reports (default: the file's)")
    group.add_argument("--device-name", type=name, metavar="NAME", help="device name in reports (default: as the driver says)")
    group.add_argument("--flush-l2", action="store_true", help="event mode: empty the L2 cache before each timed call")


def folder(text: str) -> Path:
    """argparse type of a folder: an empty name (an unset shell variable) is not the current folder."""
    if not text.strip() or "\0" in text:
        raise argparse.ArgumentTypeError("needs the name of a folder")
    return Path(text)


def name(text: str) -> str:
    """argparse type of a name that goes into reports: not empty, of bounded length."""
    if not text.strip() or len(text) > MAX_NAME_CHARACTERS:
        raise argparse.ArgumentTypeError(f"a name has 1 to {MAX_NAME_CHARACTERS} characters")
    return text


def clocks(text: str) -> str:
    """argparse type of --clocks."""
    if valid_request(text):
        return text
    raise argparse.ArgumentTypeError(f"{text!r} is not none, lock or a number of MHz (100 to 10000)")


def clocks_of(args: argparse.Namespace, workload: WorkloadRef) -> str:
    """What is asked of the clocks: the flag, else the project file, else none."""
    return str(args.clocks or workload.clocks or "none")


def device_of(args: argparse.Namespace, workload: WorkloadRef) -> Device:
    """Where it runs: the flag, else the project file's, else the GPU if there is one."""
    asked: Device | None = args.device
    return asked if asked is not None else workload.device


def run_clocks(args: argparse.Namespace, workload: WorkloadRef, say: Say) -> DeviceClocks:
    """The clocks around a whole verb; the profiles and judgements inside it then lock nothing of their own."""
    device = device_of(args, workload)
    load = torch_load(lambda: find_interpreter(args.python, workload.path, device, say), device)
    return DeviceClocks(clocks_of(args, workload), device=device, load=load, say=say, wait=True)


def count(text: str) -> int:
    """argparse type: a whole number >= 0."""
    if text.isdigit() and int(text) <= 1_000_000:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a whole number between 0 and 1000000")


def positive_count(text: str) -> int:
    """argparse type: a whole number >= 1."""
    if count(text) == 0:
        raise argparse.ArgumentTypeError("must be at least 1")
    return int(text)


def seconds(text: str) -> float:
    """argparse type of a duration: "90", "90s", "10m", "1h30m" -> seconds, above 0."""
    match = re.fullmatch(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s?)?", text.strip())
    if match is None or not any(match.groups()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration such as 90s, 10m or 1h30m")
    hours, minutes, rest = (float(part) if part else 0.0 for part in match.groups())
    total = hours * 3600 + minutes * 60 + rest
    if not 0 < total <= MAX_DURATION_S:
        raise argparse.ArgumentTypeError(f"a duration must be above 0 and at most {MAX_DURATION_S // 3600} h")
    return total


def no_params(params: dict[str, str], *, verb: str) -> None:
    """For verbs that run no workload. Raises BadInput."""
    if params:
        raise BadInput("unknown_argument", f"unknown argument --{next(iter(params))}", where=verb, fix=f"see {verb} --help")


def split_params(unknown: Sequence[str], *, verb: str) -> dict[str, str]:
    """Leftover arguments of the form --NAME=VALUE are workload parameters. Anything else is BadInput."""
    params: dict[str, str] = {}
    for argument in unknown:
        match = _PARAM.fullmatch(argument)
        if match is None:
            raise BadInput("unknown_argument", f"unknown argument {argument!r}", where=verb,
                           fix=f"see {verb} --help; workload parameters are written --NAME=VALUE")
        if match[1] in params:
            raise BadInput("given_twice", f"--{match[1]} is given twice", where=verb, fix="give each parameter once")
        params[match[1]] = match[2]
    return params

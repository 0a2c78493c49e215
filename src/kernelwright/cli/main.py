"""`kernelwright VERB ...`: finds the verb, runs it, prints its answer, and turns errors into one line and an exit code."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from types import FrameType, ModuleType
from typing import NoReturn

from .. import __version__
from ..model.errors import EXIT_INTERRUPTED, EXIT_WORKLOAD_FAILED, BadInput, KernelwrightError
from .common import Answer, split_params
from .progress import Progress

VERBS = {
    "profile_kernel": "profile one workload in one mode and print the contract",
    "optimize": "profile, try improvements, judge them, keep the best",
    "judge": "judge one candidate: correctness, timing, audit",
    "compare": "show profiles side by side; gate on a slow-down",
    "devlog": "append to or show a kernel's development log",
    "doctor": "say what this machine can do, what is missing, and the fix",
    "gpu_clock": "lock, reset or show the GPU's clocks by hand",
}


TAKES_SCRIPTS = ("profile_kernel",)
"""Verbs whose arguments after `--` are a script's own."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise BadInput("usage", message, where=self.prog, fix=f"see {self.prog} --help")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb. Returns the exit code; prints one JSON object with --json, else text."""
    argv = list(sys.argv[1:] if argv is None else argv)
    as_json = "--json" in (argv[: argv.index("--")] if "--" in argv else argv)
    for number in (signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)):
        signal.signal(number, _interrupt)
    try:
        answer = _run(argv)
        _print(answer, as_json)
    except KernelwrightError as error:
        return _fail(error, as_json)
    except KeyboardInterrupt:
        return _fail(_Interrupted("interrupted", "interrupted"), as_json)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_WORKLOAD_FAILED
    except Exception as error:  # noqa: BLE001 - the outer edge: our own fault too ends in one line and, with --json, one object
        if os.environ.get("KERNELWRIGHT_DEBUG"):
            traceback.print_exc()
        place = traceback.extract_tb(error.__traceback__)[-1]
        return _fail(_Internal("internal", f"{type(error).__name__}: {error}", where=f"{place.filename}:{place.lineno}",
                               fix="please report this; KERNELWRIGHT_DEBUG=1 shows the whole trace"), as_json)
    return answer.exit_code


def _print(answer: Answer, as_json: bool) -> None:
    print(json.dumps({"status": "ok", **answer.data}, allow_nan=False) if as_json else answer.text, flush=True)
    if answer.tail:
        say(answer.tail)


def build_parser(verb: str) -> argparse.ArgumentParser:
    """The parser of one verb, as `--help` shows it."""
    module = _module(verb)
    parser = _Parser(prog=f"{verb}.py" if sys.argv[0].endswith(f"{verb}.py") else f"kernelwright {verb}",
                     description=getattr(module, "DESCRIPTION", module.HELP), allow_abbrev=False)
    parser.add_argument("--json", action="store_true", help="print exactly one JSON object on stdout")
    module.add_arguments(parser)
    return parser


def say(line: str) -> None:
    """One progress line on stderr."""
    print(line, file=sys.stderr, flush=True)


def _run(argv: list[str]) -> Answer:
    if not argv or argv[0] in ("-h", "--help"):
        rows = "\n".join(f"  {verb:<16}{words}" for verb, words in VERBS.items())
        return Answer({"verbs": VERBS}, f"usage: kernelwright VERB ...\n\n{rows}\n\nkernelwright VERB --help says more.")
    if argv[0] in ("-V", "--version"):
        return Answer({"version": __version__}, f"kernelwright {__version__}")
    verb = argv[0].replace("-", "_")
    if verb not in VERBS:
        raise BadInput("unknown_verb", f"unknown verb {argv[0]!r}", where="kernelwright", fix=f"one of: {', '.join(VERBS)}")
    parser = build_parser(verb)
    own, rest = _split(argv[1:]) if verb in TAKES_SCRIPTS else (argv[1:], None)
    args, unknown = _parse(parser, own)
    if rest is not None:
        args.script_args = rest
    with Progress() as progress:
        answer: Answer = _module(verb).run(args, split_params(unknown, verb=parser.prog), progress.say)
    return answer


def _split(argv: list[str]) -> tuple[list[str], list[str] | None]:
    """(our arguments, those after the first `--`: a script's own; None without `--`)."""
    if "--" not in argv:
        return argv, None
    place = argv.index("--")
    return argv[:place], argv[place + 1:]


def _parse(parser: argparse.ArgumentParser, argv: list[str]) -> tuple[argparse.Namespace, list[str]]:
    if any(action.nargs == argparse.PARSER for action in parser._actions):  # argparse refuses to intermix sub-commands
        return parser.parse_known_args(argv)
    # `TARGET --mode event VERSION` is as good as `TARGET VERSION --mode event`.
    return parser.parse_known_intermixed_args(argv)


def _module(verb: str) -> ModuleType:
    return importlib.import_module(f".{verb}", __package__)


class _Interrupted(KernelwrightError):
    exit_code = EXIT_INTERRUPTED


class _Internal(KernelwrightError):
    exit_code = 1


def _fail(error: KernelwrightError, as_json: bool) -> int:
    if as_json:
        print(json.dumps({"status": "error", "error": error.as_dict()}))
    else:
        say(f"kernelwright: {error.line()}")
    return error.exit_code


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt



"""`kernelwright VERB ...`: finds the verb, runs it, prints its answer, and turns errors into one line and an exit code."""

from __future__ import annotations

import argparse
import contextlib
import errno
import importlib
import io
import json
import os
import re
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType, ModuleType
from typing import NoReturn

from .. import __version__
from ..model.errors import EXIT_WORKLOAD_FAILED, BadInput, Interrupted, KernelwrightError, NotWritable
from .common import Answer, split_params
from .progress import Progress

VERBS = {
    "profile_kernel": "profile one workload in one mode and print the contract",
    "optimize": "profile, try improvements, judge them, keep the best",
    "judge": "judge one candidate: correctness, timing, audit",
    "compare": "show profiles side by side; gate on a slow-down",
    "bench": "hold a project's kernels to their budgets; one that is over exits 5",
    "init": "write a project file from the workloads that a folder has",
    "devlog": "append to or show a kernel's development log",
    "doctor": "say what this machine can do, what is missing, and the fix",
    "gpu_clock": "lock, reset or show the GPU's clocks by hand",
}


TAKES_SCRIPTS = ("profile_kernel",)
"""Verbs whose arguments after `--` are a script's own."""
_NOT_TEXT = re.compile("[\0\ud800-\udfff]")
"""NUL, and what stands for the bytes of an argument that are not UTF-8 (PEP 383)."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        dashes = "; a file whose name begins with a dash is written ./-NAME.py" if "required" in message else ""
        raise BadInput("usage", message, where=self.prog, fix=f"see {self.prog} --help{dashes}")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb. Returns the exit code; prints one JSON object with --json, else text."""
    argv = list(sys.argv[1:] if argv is None else argv)
    _open_streams()
    as_json = _wants_json(argv)
    for number in (signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)):
        signal.signal(number, _interrupt)
    try:
        with _every_interrupt():
            answer = _run(argv)
        _print(answer, as_json)
    except KernelwrightError as error:
        return _fail(error, as_json)
    except KeyboardInterrupt:
        return _fail(Interrupted(_verb(argv)), as_json)
    except _StdoutFailed as error:
        return _stdout_failed(error)
    except OSError as error:
        return _fail(_of_system(error, _verb(argv)), as_json)
    except Exception as error:  # noqa: BLE001 - the outer edge: our own fault too ends in one line and, with --json, one object
        if os.environ.get("KERNELWRIGHT_DEBUG"):
            traceback.print_exc()
        place = traceback.extract_tb(error.__traceback__)[-1]
        return _fail(_Internal("internal", f"{type(error).__name__}: {error}", where=f"{place.filename}:{place.lineno}",
                               fix="please report this; KERNELWRIGHT_DEBUG=1 shows the whole trace"), as_json)
    return answer.exit_code


def _open_streams() -> None:
    """Streams that the user closed (`>&-`) become the null device, so that no file of ours gets their numbers."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - for the rest of the process


def _wants_json(argv: list[str]) -> bool:
    return "--json" in (argv[: argv.index("--")] if "--" in argv else argv)


def _print(answer: Answer, as_json: bool) -> None:
    _write(json.dumps({"status": "ok", **answer.data}, allow_nan=False) if as_json else answer.text)
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
    as_json = _wants_json(argv)
    for argument in argv:
        if _NOT_TEXT.search(argument):
            raise BadInput("bad_encoding", "holds bytes that are not UTF-8 text", where=argument, fix="rename it")
    if not argv or argv[0] in ("-h", "--help"):
        rows = "\n".join(f"  {verb:<16}{words}" for verb, words in VERBS.items())
        return Answer({"verbs": VERBS}, f"usage: kernelwright VERB ...\n\n{rows}\n\nkernelwright VERB --help says more.")
    if argv[0] in ("-V", "--version"):
        return Answer({"version": __version__}, f"kernelwright {__version__}")
    verb = argv[0].replace("-", "_")
    if verb not in VERBS:
        raise BadInput("unknown_verb", f"unknown verb {argv[0]!r}", where="kernelwright", fix=f"one of: {', '.join(VERBS)}")
    parser = build_parser(verb)
    _refuse_twice(parser, argv[1:])
    own, rest = _split(argv[1:]) if verb in TAKES_SCRIPTS else (argv[1:], None)
    shown = io.StringIO()
    try:
        with contextlib.redirect_stdout(shown if as_json else sys.stdout):
            args, unknown = _parse(parser, own)
    except SystemExit:  # --help
        if not as_json:
            raise
        return Answer({"verb": verb, "help": shown.getvalue()}, "")
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
    args, unknown = parser.parse_known_intermixed_args(argv)
    params = [word for word in unknown if word.startswith("--")]
    if params and len(params) < len(unknown):  # argparse gives an optional positional up at an option that it does not know
        return parser.parse_known_intermixed_args([word for word in argv if word not in params] + params)
    return args, unknown


def _refuse_twice(parser: argparse.ArgumentParser, argv: list[str]) -> None:
    """An option that takes one value and is given twice: the last would win in silence. Raises BadInput."""
    single = set(_single_options(parser))
    given = [word.partition("=")[0] for word in (argv[: argv.index("--")] if "--" in argv else argv)]
    for option in single:
        if given.count(option) > 1:
            raise BadInput("given_twice", f"{option} is given {given.count(option)} times", where=parser.prog, fix="give it once")


def _single_options(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for child in action.choices.values():
                yield from _single_options(child)
        elif isinstance(action, argparse._StoreAction):
            yield from action.option_strings


def _module(verb: str) -> ModuleType:
    return importlib.import_module(f".{verb}", __package__)


class _Internal(KernelwrightError):
    exit_code = 1


class _StdoutFailed(Exception):
    """The answer could not be written; the cause is the OSError."""


def _write(text: str) -> None:
    try:
        print(text, flush=True)
    except OSError as error:
        raise _StdoutFailed from error


def _stdout_failed(error: _StdoutFailed) -> int:
    """A reader that went away is told nothing; a full disk is. What is still buffered would fail again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if isinstance(error.__cause__, BrokenPipeError):
        return EXIT_WORKLOAD_FAILED
    assert isinstance(error.__cause__, OSError)
    fault = NotWritable(error.__cause__, "standard output", fix="send it elsewhere")
    say(f"kernelwright: {fault.line()}")
    return fault.exit_code


def _of_system(error: OSError, verb: str) -> KernelwrightError:
    """A file that the system refused, where no nearer place had better words for it."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return NotWritable(error, Path(error.filename) if error.filename else verb)
    return BadInput("file_refused", f"the system refused a file: {error.strerror or error}", where=str(error.filename or verb),
                    fix="check its name, its rights and the disk it is on")


def _verb(argv: list[str]) -> str:
    return argv[0] if argv else "kernelwright"


def _fail(error: KernelwrightError, as_json: bool) -> int:
    if not as_json:
        say(f"kernelwright: {error.line()}")
        return error.exit_code
    try:
        _write(json.dumps({"status": "error", "error": error.as_dict()}))
    except _StdoutFailed as failed:
        _stdout_failed(failed)
    return error.exit_code


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


@contextlib.contextmanager
def _every_interrupt() -> Iterator[None]:
    """An interrupt that comes amid a destructor or a weak reference's callback, whose exceptions Python drops, comes again."""
    before, waiting = sys.unraisablehook, []

    def hook(error: sys.UnraisableHookArgs) -> None:
        if issubclass(error.exc_type, KeyboardInterrupt):
            main_thread = threading.main_thread().ident or 0
            again = threading.Timer(0.01, signal.pthread_kill, (main_thread, signal.SIGTERM))  # what is raised in here is dropped too
            again.daemon = True
            waiting.append(again)
            again.start()
        else:
            before(error)

    sys.unraisablehook = hook
    try:
        yield
    finally:
        sys.unraisablehook = before
        for again in waiting:
            again.cancel()

"""Starts a verb in kernelwright's environment: what each file in scripts/ ends in."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from .errors import SetupError
from .place import CHECKOUT, environment_folder, python_of
from .stamp import is_ready, lock_hash

LAUNCH = Path(__file__).with_name("launch.py")
_ASK = """
import sys
print("%d.%d" % sys.version_info[:2])
import importlib.util
print(" ".join(name for name in sys.argv[1:] if importlib.util.find_spec(name) is None))
"""


def start(verb: str, argv: Sequence[str]) -> int:
    """Run `verb` with argv[1:]. On POSIX this process becomes the verb's, so it returns only on an error: the exit code."""
    try:
        command = [*interpreter(), *byte_code(), os.fspath(LAUNCH), verb, *argv[1:]]
        os.environ["KERNELWRIGHT_SCRIPT"] = argv[0]
        os.environ["KERNELWRIGHT_STARTED_BY"] = sys.executable
        return _become(command)
    except SetupError as error:
        return report(error, argv)


def interpreter() -> list[str]:
    """The interpreter and its options: KERNELWRIGHT_PYTHON as it is, else kernelwright's environment, cut off from the user's settings.

    -I: neither PYTHONPATH nor the working folder can put another numpy or yaml before ours; the workload's interpreter still sees
    the user's variables. Raises SetupError.
    """
    asked = os.environ.get("KERNELWRIGHT_PYTHON")
    if asked:
        return [_as_it_is(asked)]
    environment = environment_folder(CHECKOUT, os.environ)
    lock = CHECKOUT / "requirements.lock"
    if not is_ready(environment, {lock.name: lock_hash(lock)}):
        from .build import ensure

        ensure(environment, say)
    return [os.fspath(python_of(environment)), "-I", "-X", "utf8"]


def byte_code() -> list[str]:
    """Options that send byte code beside the environment, for an installed copy: it stays as it was installed, under root too, who may
    write anywhere. A git checkout keeps its own."""
    if (CHECKOUT / ".git").exists():
        return []
    return ["-X", f"pycache_prefix={os.fspath(environment_folder(CHECKOUT, os.environ))}-pycache"]


def _as_it_is(asked: str) -> str:
    """Check the interpreter that the user named; nothing is ever installed there."""
    import shutil
    import subprocess

    from .build import MODULES

    fix = "set KERNELWRIGHT_PYTHON to a Python 3.10 or newer that has kernelwright's dependencies, or unset it"
    path = shutil.which(os.path.expanduser(asked))
    if path is None:
        raise SetupError("python_not_found", "there is no such interpreter", where=f"KERNELWRIGHT_PYTHON={asked}", fix=fix)
    answer = subprocess.run([path, "-c", _ASK, *MODULES], capture_output=True, text=True)
    lines = answer.stdout.splitlines() or [""]
    if not lines[0] or [int(part) for part in lines[0].split(".")] < [3, 10]:
        message = f"Python 3.10 or newer is needed, this is {lines[0] or 'no Python'}"
        raise SetupError("python_too_old", message, where=f"KERNELWRIGHT_PYTHON={asked}", fix=fix)
    if lines[1:] != [""]:
        message = f"this interpreter lacks the modules {', '.join(lines[1].split())}"
        fix = f"{path} -m pip install --require-hashes -r {CHECKOUT / 'requirements.lock'}, or unset KERNELWRIGHT_PYTHON"
        raise SetupError("modules_missing", message, where=f"KERNELWRIGHT_PYTHON={asked}", fix=fix)
    return path


def _become(command: list[str]) -> int:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # closed by the user
            stream.flush()
    try:
        if sys.platform == "win32":
            import subprocess

            return subprocess.call(command)
        os.execv(command[0], command)
    except OSError as error:
        message, fix = f"the interpreter does not start: {error.strerror}", "remove the environment, or mend KERNELWRIGHT_PYTHON"
        raise SetupError("python_not_found", message, where=command[0], fix=fix) from error


def report(error: SetupError, argv: Sequence[str]) -> int:
    """One line on stderr or, with --json, one object on stdout. Returns the exit code."""
    own = argv[: argv.index("--")] if "--" in argv else argv
    if "--json" in own:
        print(json.dumps({"status": "error", "error": error.as_dict()}))
    else:
        say(error.line())
    return error.exit_code


def say(line: str) -> None:
    """One line for the user."""
    print(f"kernelwright: {line}", file=sys.stderr, flush=True)

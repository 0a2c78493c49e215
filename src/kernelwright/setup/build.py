"""Makes, mends and extends an environment, one process at a time, so that it is either whole or gone."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from .child import Runner
from .errors import SetupError, interrupted
from .explain import NEEDED_MB, cannot_write, free_mb, install_failed, no_installer, no_space, not_ours
from .hold import hold
from .place import CHECKOUT, python_of
from .stamp import Stamp, base_of, is_ready, lock_hash, read_stamp, write_stamp

Say = Callable[[str], None]
MODULES = ("filelock", "jinja2", "matplotlib", "msgspec", "numpy", "pydantic", "pynvml", "rich", "scipy", "yaml")


@dataclass(frozen=True)
class Wanted:
    """What an environment has to hold: every pin of the lock files, and modules that prove it by importing."""

    locks: tuple[Path, ...] = (CHECKOUT / "requirements.lock",)
    modules: tuple[str, ...] = MODULES
    needed_mb: int = NEEDED_MB

    def hashes(self) -> dict[str, str]:
        """Lock file name -> hash of its content. Raises OSError."""
        return {lock.name: lock_hash(lock) for lock in self.locks}


RUNTIME = Wanted()


def ensure(environment: Path, say: Say, wanted: Wanted = RUNTIME) -> Path:
    """The interpreter of a whole environment, made or mended first where needed. Raises SetupError.

    Whatever ends a build leaves nothing half-made: a failure or an interrupt removes it, and after a SIGKILL or a power cut the
    stamp, which is not complete, makes the next use remove it.
    """
    hashes = wanted.hashes()
    if is_ready(environment, hashes):
        return python_of(environment)
    try:
        environment.parent.mkdir(parents=True, exist_ok=True)
        with hold(lock_path(environment), say) as descriptor, stop_signals_raise():
            if not is_ready(environment, hashes):  # else another process made it meanwhile
                runner = Runner(log_path(environment), say, environment.parent, descriptor)
                _Build(environment, wanted, hashes, runner).run()
    except OSError as error:
        raise cannot_write(error, environment, wanted.needed_mb) from error
    except KeyboardInterrupt:
        raise interrupted() from None
    return python_of(environment)


def lock_path(environment: Path) -> Path:
    """Beside the environment, so that removing that does not remove this."""
    return environment.with_name(f"{environment.name}.lock")


def log_path(environment: Path) -> Path:
    """What the installers wrote; kept after a failure only."""
    return environment.with_name(f"{environment.name}-setup.log")


@contextmanager
def stop_signals_raise() -> Iterator[None]:
    """SIGTERM and SIGHUP become KeyboardInterrupt, so that they clean up as Ctrl-C does."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    names = [name for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    before = {getattr(signal, name): signal.signal(getattr(signal, name), stop) for name in names}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@dataclass
class _Build:
    """One build or mending, with the lock held."""

    environment: Path
    wanted: Wanted
    hashes: dict[str, str]
    runner: Runner

    def run(self) -> None:
        """Make it whole, or remove it and raise SetupError, KeyboardInterrupt or OSError."""
        self.runner.log.unlink(missing_ok=True)
        stamp = read_stamp(self.environment)
        if stamp is None and self.environment.exists() and not _is_empty(self.environment):
            raise not_ours(self.environment)
        usable = stamp is not None and stamp.complete and _minor_version(python_of(self.environment)) == stamp.python_version
        if stamp is not None and usable and self.hashes.items() <= stamp.locks.items():
            # The base interpreter was replaced by one of the same minor version: nothing to install.
            write_stamp(self.environment, Stamp(True, stamp.locks, stamp.python_version, base_of(self.environment)))
            return
        if not usable and free_mb(self.environment) < self.wanted.needed_mb:
            raise no_space(self.environment, self.wanted.needed_mb)
        if stamp is not None and not usable:
            self.runner.say(f"removing an environment that is broken or half-made: {self.environment}")
            shutil.rmtree(self.environment)
        try:
            self._fill(stamp.locks if stamp is not None and usable else None)
        except BaseException as error:
            if stamp is not None and usable and isinstance(error, SetupError):
                write_stamp(self.environment, stamp)  # as it was: installers put nothing in place before everything is downloaded
            else:
                shutil.rmtree(self.environment, ignore_errors=True)
            raise
        self.runner.log.unlink(missing_ok=True)

    def _fill(self, installed: dict[str, str] | None) -> None:
        """Install what is missing. `installed`: locks of a usable environment, None to make a new one."""
        self.environment.mkdir(exist_ok=True)
        write_stamp(self.environment, Stamp(complete=False))
        failure = ""
        for tool in _tools(self.runner.say):
            if installed is None and failure:
                _empty(self.environment)
            if self._install(tool, installed):
                break
            failure = self.runner.output
        else:
            raise self._failed("installing kernelwright's dependencies", failure)
        python = python_of(self.environment)
        if not self.runner.run("checking it", [python, "-I", "-c", f"import {', '.join(self.wanted.modules)}"]):
            raise self._failed("importing the installed modules", self.runner.output)
        locks = {**(installed or {}), **self.hashes}
        write_stamp(self.environment, Stamp(True, locks, _minor_version(python), base_of(self.environment)))

    def _install(self, tool: str, installed: dict[str, str] | None) -> bool:
        """With one tool: the environment if there is none yet, then each lock that is not installed. True if all went well."""
        python = python_of(self.environment)
        if installed is None:
            what = f"making kernelwright's environment in {self.environment} (once; about a minute)"
            if not self.runner.run(what, _creation(tool, self.environment)):
                return False
        for lock in self.wanted.locks:
            if installed is None or installed.get(lock.name) != self.hashes[lock.name]:
                how = "uv" if tool != "pip" else "pip"
                if not self.runner.run(f"installing what {lock.name} pins, with {how}", _installation(tool, python, lock)):
                    return False
        return True

    def _failed(self, what: str, output: str) -> SetupError:
        return install_failed(what, output, self.environment, self.runner.log, self.wanted.modules, self.wanted.needed_mb)


def _tools(say: Say) -> Iterator[str]:
    """Installers to try, best first: the path of uv, then "pip". Raises SetupError if there is none."""
    uv = shutil.which("uv")
    if uv:
        yield uv
    if _has("ensurepip") and _has("venv"):
        if uv:
            say("uv could not do it; trying venv and pip")
        yield "pip"
    elif not uv:
        raise no_installer()


def _creation(tool: str, environment: Path) -> list[str | Path]:
    if tool == "pip":
        return [sys.executable, "-I", "-m", "venv", environment]
    return [tool, "venv", "--allow-existing", "--python", sys.executable, environment]


def _installation(tool: str, python: Path, lock: Path) -> list[str | Path]:
    options: list[str | Path] = ["--require-hashes", "--only-binary", ":all:", "-r", lock]
    if tool == "pip":
        return [python, "-I", "-m", "pip", "install", "--no-input", "--disable-pip-version-check", "--progress-bar", "off", *options]
    return [tool, "pip", "install", "--python", python, *options]


def _has(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def _minor_version(python: Path) -> str:
    """Major and minor version of an interpreter, "" if it does not run."""
    try:
        command = [str(python), "-I", "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
        asked = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return asked.stdout.strip() if asked.returncode == 0 else ""


def _is_empty(folder: Path) -> bool:
    return folder.is_dir() and not any(os.scandir(folder))


def _empty(environment: Path) -> None:
    """Remove what a failed tool left, but not the stamp that says half-made."""
    shutil.rmtree(environment)
    environment.mkdir()
    write_stamp(environment, Stamp(complete=False))

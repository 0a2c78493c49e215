"""Entry of the probe, started by path: `PYTHON start.py run REQUEST.json`, `PYTHON start.py judge ...`,
`PYTHON start.py sanitize REQUEST.json` or `PYTHON start.py load SECONDS DEVICE`.

Loads its own folder as the package `kernelwright_probe` and takes the folder off sys.path, so that neither our module
names (event, loaders, ...) nor the rest of kernelwright can meet the workload's. This file parses on Python 3.7.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import os
import signal
import sys
import threading
import time
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType
from typing import Any

PACKAGE = "kernelwright_probe"
USAGE = "usage: start.py run REQUEST.json | start.py judge ... | start.py sanitize REQUEST.json | start.py load SECONDS DEVICE\n"
WATCH_S = 1.0
MODULES = {"run": ".run", "judge": ".confine", "sanitize": ".judge_sanitize", "load": ".load"}


class OwnLoader(SourceFileLoader):
    """Keeps the byte code of one module below `prefix`; always: also where the user wants none to be written."""

    prefix, always = "", False

    @classmethod
    def at(cls, name: str, file: str, prefix: str, *, always: bool = False) -> OwnLoader:
        """A loader of one module."""
        loader = cls(name, file)
        loader.prefix, loader.always = prefix, always
        return loader

    def get_code(self, fullname: str) -> CodeType | None:
        """See SourceFileLoader."""
        before = sys.pycache_prefix, sys.dont_write_bytecode
        sys.pycache_prefix, sys.dont_write_bytecode = self.prefix, before[1] and not self.always
        try:
            return super().get_code(fullname)
        finally:
            sys.pycache_prefix, sys.dont_write_bytecode = before


class OwnModules:
    """Finds this package's modules for `OwnLoader`: an installed plugin stays as it was installed."""

    def __init__(self, folder: str, prefix: str) -> None:
        self.folder, self.prefix = folder, prefix

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """See importlib.abc.MetaPathFinder."""
        if not name.startswith(PACKAGE + "."):
            return None
        place = os.path.join(self.folder, *name.split(".")[1:])
        inside = [place] if os.path.isdir(place) else None
        file = os.path.join(place, "__init__.py") if inside else place + ".py"
        if not os.path.isfile(file):
            return None
        return importlib.util.spec_from_file_location(name, file, loader=OwnLoader.at(name, file, self.prefix),
                                                      submodule_search_locations=inside)


class InstalledModules:
    """Finds the modules installed beside torch for `OwnLoader`: without byte code each process compiles them for seconds. The user's own
    files are left alone, and so is whatever other finders take."""

    def __init__(self, site: str, prefix: str) -> None:
        self.site, self.prefix = os.path.join(site, ""), prefix

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """See importlib.abc.MetaPathFinder."""
        spec = PathFinder.find_spec(name, path, target)
        if spec is None or type(spec.loader) is not SourceFileLoader or not (spec.origin or "").startswith(self.site):
            return None
        spec.loader = OwnLoader.at(name, spec.loader.path, self.prefix, always=True)
        return spec


def keep_byte_code() -> None:
    """Keep what is compiled of torch and its neighbours in the folder that our starter names; it does where they have no byte code."""
    prefix = os.environ.pop("KERNELWRIGHT_BYTE_CODE", "")
    torch = PathFinder.find_spec("torch") if prefix else None
    if torch is not None and torch.origin and PathFinder in sys.meta_path:
        finder = InstalledModules(os.path.dirname(os.path.dirname(torch.origin)), prefix)
        sys.meta_path.insert(sys.meta_path.index(PathFinder), finder)


def load_package(folder: str) -> None:
    """Import `folder` as the package PACKAGE and drop it from sys.path."""
    sys.path[:] = [entry for entry in sys.path if not entry or os.path.realpath(entry) != os.path.realpath(folder)]
    init = os.path.join(folder, "__init__.py")
    prefix = os.environ.pop("KERNELWRIGHT_PYCACHE", "")
    loader = OwnLoader.at(PACKAGE, init, prefix) if prefix else None
    spec = importlib.util.spec_from_file_location(PACKAGE, init, loader=loader, submodule_search_locations=[folder])
    if spec is None or spec.loader is None:
        raise ImportError("cannot load " + init)
    if prefix:
        sys.meta_path.insert(0, OwnModules(folder, prefix))
    package = importlib.util.module_from_spec(spec)
    sys.modules[PACKAGE] = package
    spec.loader.exec_module(package)


def die_with_parent() -> None:
    """Linux: SIGKILL this process when its parent dies, however it dies (PR_SET_PDEATHSIG = 1, prctl(2)).

    A parent that died before this line sends no signal any more: its number is then none of this process's ancestors. KERNELWRIGHT_BEGUN_FD
    names a pipe's end that is closed once this holds: before, to stop this process would leave it stopped for ever if its parent died.
    """
    number, _, namespace = os.environ.pop("KERNELWRIGHT_STARTER", "").partition(" ")
    begun = os.environ.pop("KERNELWRIGHT_BEGUN_FD", "")
    if os.environ.pop("KERNELWRIGHT_UNDER", "") and number:
        if is_ancestor(int(number), namespace):  # else it never was: a profiler that starts programs from elsewhere
            threading.Thread(target=leave_with, args=(int(number), namespace), daemon=True).start()
        return
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
        if number and not is_ancestor(int(number), namespace):
            os._exit(1)
    if begun:
        os.close(int(begun))


def leave_with(number: int, namespace: str) -> None:
    """End this process, which descends from the starter, within WATCH_S of the starter's end, or of a profiler's between the two.

    Under a profiler the signal of die_with_parent won't do: it comes when the *thread* that forked this process ends.
    """
    while is_ancestor(number, namespace):
        time.sleep(WATCH_S)
    os.kill(os.getpid(), signal.SIGKILL)


def is_ancestor(number: int, namespace: str) -> bool:
    """Whether this process descends from that one, also through a wrapper between the two; True where /proc can't tell.

    namespace: what the numbers of the starter's processes mean (the link /proc/self/ns/pid); in another one they can't be compared.
    """
    process = os.getppid()
    try:
        if os.readlink("/proc/self/ns/pid") != namespace:
            return True
        while process not in (0, number):
            with open("/proc/" + str(process) + "/stat", "rb") as file:
                process = int(file.read().rpartition(b")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return True
    return process == number


def main(argv: list[str]) -> int:
    """Run one action; returns the process's exit code."""
    if sys.version_info < (3, 10):  # noqa: UP036 - the workload's interpreter is not ours to choose
        sys.stderr.write("kernelwright's probe needs Python 3.10 or newer, this is " + sys.version.split()[0] + "\n")
        return 3
    if len(argv) < 2 or argv[0] not in MODULES:
        sys.stderr.write(USAGE)
        return 2
    die_with_parent()
    load_package(os.path.dirname(os.path.abspath(__file__)))
    keep_byte_code()
    module = importlib.import_module(PACKAGE + MODULES[argv[0]])
    return int(module.main(argv[1:]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

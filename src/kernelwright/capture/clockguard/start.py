"""Started by path: `PYTHON start.py watch` (the watchdog of one run) or `PYTHON start.py sweep` (reset what dead runs left locked).

Loads its own folder as the package `kernelwright_clockguard`: the watchdog needs nothing else of kernelwright's, so it starts fast and
can't fail for a reason of ours. `sweep` prints one JSON object and suits a hook; it needs nvidia-smi or an importable pynvml.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys

PACKAGE = "kernelwright_clockguard"


def main(argv: list[str]) -> int:
    """Run one action; returns the exit code."""
    folder = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if not entry or os.path.realpath(entry) != os.path.realpath(folder)]
    spec = importlib.util.spec_from_file_location(PACKAGE, os.path.join(folder, "__init__.py"), submodule_search_locations=[folder])
    if argv not in (["watch"], ["sweep"]) or spec is None or spec.loader is None:
        sys.stderr.write("usage: start.py watch | start.py sweep\n")
        return 2
    package = importlib.util.module_from_spec(spec)
    sys.modules[PACKAGE] = package
    spec.loader.exec_module(package)
    watch = importlib.import_module(PACKAGE + ".watch")
    return int(watch.watch()) if argv == ["watch"] else _sweep()


def _sweep() -> int:
    release, switch, watch = (importlib.import_module(f"{PACKAGE}.{name}") for name in ("release", "switch", "watch"))
    found = importlib.util.find_spec("pynvml")
    try:
        done = release.sweep(watch.load_nvml(found.origin if found else None))
    except (switch.Refused, OSError) as error:
        sys.stdout.write(json.dumps({"reset": [], "refused": str(error)}) + "\n")
        return 3
    sys.stdout.write(json.dumps({"reset": done}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Runs inside the environment: `PYTHON launch.py VERB ...` runs the verb with the code of this checkout.

Started by path, because an isolated interpreter (-I) takes no PYTHONPATH, and so that no variable leaks into the workload's process.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path


def main() -> int:
    """Returns the verb's exit code."""
    here = Path(__file__).resolve().parent
    if sys.path and sys.path[0] and Path(sys.path[0]).resolve() == here:
        del sys.path[0]
    sys.path.insert(0, str(here.parents[1]))
    verb, *arguments = sys.argv[1:]
    sys.argv = [os.environ.pop("KERNELWRIGHT_SCRIPT", verb), *arguments]
    # By name: this file starts a program, it is no part of what it starts.
    exit_code: int = importlib.import_module("kernelwright.cli").main([verb, *arguments])
    return exit_code


if __name__ == "__main__":
    sys.exit(main())

"""What every script here does: check Python, find or make kernelwright's environment, run the verb in it.

Like the scripts beside it, this file must parse on Python 2.7 and 3.6, to say there which Python is needed.
"""

from __future__ import print_function

import json
import os
import sys


def run(verb):
    """Run one verb with this process's arguments. Does not return."""
    if sys.version_info < (3, 10):
        sys.exit(too_old(sys.argv))
    sys.path[0] = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "src")
    from kernelwright.setup.start import start

    sys.exit(start(verb, sys.argv))


def too_old(argv):
    """Say which Python is needed: one line, or one JSON object with --json. Returns the exit code."""
    where = sys.executable or "python"
    message = "Python 3.10 or newer is needed, this is %d.%d" % sys.version_info[:2]
    fix = "run %s %s" % (newer_python(), argv[0])
    if "--json" in (argv[: argv.index("--")] if "--" in argv else argv):
        error = {"code": "python_too_old", "message": message, "where": where, "fix": fix}
        print(json.dumps({"status": "error", "error": error}))
    else:
        print("kernelwright: %s: %s Fix: %s" % (where, message, fix), file=sys.stderr)
    return 3


def newer_python():
    """The newest fitting Python on PATH, by name; python3.12 (to be installed) if there is none."""
    folders = os.environ.get("PATH", "").split(os.pathsep)
    names = ["python3.%d" % minor for minor in range(14, 9, -1)]
    return next((name for name in names for folder in folders if os.access(os.path.join(folder, name), os.X_OK)), "python3.12")

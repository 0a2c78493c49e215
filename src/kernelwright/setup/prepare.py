"""`PYTHON prepare.py [--dev] [--torch]`: the environment without running a verb, for the Makefile. Prints its interpreter."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[2])

from kernelwright.setup.build import MODULES, RUNTIME, Wanted, ensure  # noqa: E402
from kernelwright.setup.errors import SetupError  # noqa: E402
from kernelwright.setup.place import CHECKOUT, environment_folder  # noqa: E402
from kernelwright.setup.start import report, say  # noqa: E402
from kernelwright.setup.torch_install import ensure_torch  # noqa: E402

DEVELOPMENT = Wanted(
    locks=(CHECKOUT / "requirements.lock", CHECKOUT / "requirements-dev.lock"),
    modules=(*MODULES, "hypothesis", "importlinter", "jsonschema", "mypy", "pytest"),
    needed_mb=450,
)


def main(argv: list[str]) -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(prog="prepare.py", description="Make kernelwright's environment and print its interpreter.")
    parser.add_argument("--dev", action="store_true", help="with what the tests and checks need")
    parser.add_argument("--torch", action="store_true", help="with torch, as the tests need it")
    args = parser.parse_args(argv[1:])
    try:
        environment = environment_folder(CHECKOUT, os.environ)
        python = ensure(environment, say, DEVELOPMENT if args.dev else RUNTIME)
        if args.torch:
            ensure_torch(python, environment, say)
    except SetupError as error:
        return report(error, argv)
    print(python)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))

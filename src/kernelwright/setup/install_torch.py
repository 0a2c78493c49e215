"""`PYTHON install_torch.py [--json]`: torch into the environment that PYTHON belongs to. Exit 0, or 3 with one line."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[2])

from kernelwright.setup.errors import SetupError  # noqa: E402
from kernelwright.setup.start import report, say  # noqa: E402
from kernelwright.setup.torch_install import ensure_torch, refuse_foreign  # noqa: E402


def main(argv: list[str]) -> int:
    """Returns the exit code."""
    try:
        refuse_foreign(sys.prefix, sys.base_prefix)
        ensure_torch(Path(sys.executable), Path(sys.prefix), say)
    except SetupError as error:
        return report(error, argv)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))

"""A script that launches Triton kernels in Triton's interpreter, on the CPU, in a process of its own (Triton reads the switch once)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import kernelwright

NUMPY = "arrays can be converted to Python scalars"
"""What the interpreter of some Triton says of a loop to a number that the kernel is given, under numpy 2.4."""


def interpreted(script: str) -> str:
    """Run it with this source tree's folder as its argument; "" when it ended well, else what it said."""
    source = str(Path(kernelwright.__file__).parents[1])
    variables = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, "-c", script, source], capture_output=True, text=True, env=variables)
    if NUMPY in done.stderr:
        pytest.skip("Triton's interpreter can't work with this numpy")
    return "" if done.returncode == 0 else done.stderr or f"status {done.returncode}"

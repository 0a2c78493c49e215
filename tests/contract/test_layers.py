"""What may import what: import-linter's contracts, and what they cannot see."""

from __future__ import annotations

import ast
import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "kernelwright"


def imported(path: Path) -> Iterator[tuple[int, str]]:
    """(relative level, module) of every import of a file, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((0, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.level, node.module or ""


def test_the_layers_hold() -> None:
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command; lint_imports_command()", "--no-cache"]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT / "src")}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout


def test_the_layers_of_the_contract_are_the_folders() -> None:
    assert importlib.util.find_spec("importlinter")
    folders = {path.parent.name for path in PACKAGE.glob("*/__init__.py")} - {"probe", "setup", "_data"}
    text = (ROOT / "pyproject.toml").read_text()
    layers = text.split("layers = [", 1)[1].split("]", 1)[0]
    assert folders == {line.strip().strip('",') for line in layers.splitlines() if line.strip()}


@pytest.mark.parametrize("path", sorted((PACKAGE / "probe").rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_the_probe_needs_torch_and_the_standard_library_alone(path: Path) -> None:
    """It runs in the workload's interpreter, where nothing is installed for us. Triton comes with torch."""
    for level, module in imported(path):
        if level == 0:
            assert module.split(".")[0] in {*sys.stdlib_module_names, "torch", "triton", "kernelwright_probe"}, module
        else:
            depth = len(path.relative_to(PACKAGE / "probe").parts)
            assert level <= depth, f"leaves the probe's folder: {'.' * level}{module}"


@pytest.mark.parametrize("path", sorted((PACKAGE / "setup").rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_the_set_up_needs_the_standard_library_alone(path: Path) -> None:
    for level, module in imported(path):
        if level == 0:
            assert module.split(".")[0] in sys.stdlib_module_names or module.startswith("kernelwright.setup."), module
        else:
            assert level == 1, f"leaves the set-up's folder: {'.' * level}{module}"


@pytest.mark.parametrize("path", sorted((PACKAGE / "capture" / "clockguard").glob("*.py")), ids=lambda path: path.name)
def test_the_watchdog_of_the_clocks_needs_the_standard_library_alone(path: Path) -> None:
    """It is started by path, must start fast, and must not fail for a reason of ours. NVML's binding is loaded from a file it is told."""
    for level, module in imported(path):
        assert (module.split(".")[0] in sys.stdlib_module_names) if level == 0 else level == 1, module


def test_only_scripts_and_the_command_line_print() -> None:
    for path in PACKAGE.rglob("*.py"):
        area = path.relative_to(PACKAGE).parts[0]
        if area in ("cli", "setup"):
            continue
        calls = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)]
        assert not [call.lineno for call in calls if isinstance(call.func, ast.Name) and call.func.id == "print"], path

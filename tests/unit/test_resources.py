"""kernelwright's data is found in a checkout and in an installed package."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kernelwright.model.resources import resource

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "kernelwright"


def test_in_a_checkout() -> None:
    assert resource("templates") == ROOT / "templates"
    assert resource("templates/contract.md.j2").is_file()


def test_what_is_missing_is_named() -> None:
    with pytest.raises(FileNotFoundError, match=r"templates/none\.j2"):
        resource("templates/none.j2")


def test_in_an_installed_package(tmp_path: Path) -> None:
    """As the wheel lays it out: no checkout around it, the data in kernelwright/_data."""
    installed = tmp_path / "site-packages" / "kernelwright"
    (installed / "model").mkdir(parents=True)
    (installed / "__init__.py").write_text("")
    (installed / "model" / "__init__.py").write_text("")
    shutil.copy(PACKAGE / "model" / "resources.py", installed / "model")
    shutil.copytree(ROOT / "templates", installed / "_data" / "templates")
    (tmp_path / "templates").mkdir()  # a folder of that name two levels up is not ours
    code = "from kernelwright.model.resources import resource; print(resource('templates'))"
    said = subprocess.run([sys.executable, "-c", code], cwd=tmp_path / "site-packages", capture_output=True, text=True, check=True)
    assert Path(said.stdout.strip()) == installed / "_data" / "templates"
    project = (ROOT / "pyproject.toml").read_text()
    for name in ("knowledge", "templates"):
        assert f'"{name}" = "kernelwright/_data/{name}"' in project

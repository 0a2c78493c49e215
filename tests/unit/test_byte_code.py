"""Byte code of what is installed beside torch, where it has none and none may be written there. A pretended torch: no GPU, no wait."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernelwright.capture.byte_code import VARIABLE, byte_code_variables
from kernelwright.capture.interpreter import Interpreter, find_interpreter

START = Path(__file__).resolve().parents[2] / "src" / "kernelwright" / "probe" / "start.py"
LOADS = ("import importlib.util, sys\n"
         "spec = importlib.util.spec_from_file_location('start', {start!r})\n"
         "start = importlib.util.module_from_spec(spec); spec.loader.exec_module(start)\n"
         "start.keep_byte_code()\nsys.path.insert(0, {mine!r})\nimport torch, neighbour, helper\n"
         "print(torch.__version__, sys.dont_write_bytecode, sys.pycache_prefix)\n")


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A site folder with a pretended torch and a neighbour."""
    folder = tmp_path / "site"
    (folder / "torch").mkdir(parents=True)
    (folder / "torch" / "__init__.py").write_text("from .version import __version__\n")
    (folder / "torch" / "version.py").write_text("__version__ = '2.9.1'\ncuda = None\n")
    (folder / "neighbour.py").write_text("")
    monkeypatch.setenv("PYTHONPATH", str(folder))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.delenv("PYTHONPYCACHEPREFIX", raising=False)
    monkeypatch.setenv("KERNELWRIGHT_CACHE", str(tmp_path / "cache"))
    return folder


def found():
    return find_interpreter(sys.executable, None, "cpu")


def test_an_interpreter_that_compiles_torch_each_time_is_told_from_one_that_does_not(site, monkeypatch):
    assert found().torch_version == "2.9.1" and found().compiles_anew
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE")
    assert not found().compiles_anew  # the first process will write it
    subprocess.run([sys.executable, "-c", "import torch"], check=True, timeout=60)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    assert not found().compiles_anew  # it is there
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", str(site / "elsewhere"))
    assert found().compiles_anew  # and not looked for


def test_files_of_one_made_up_date_are_left_alone(site):
    os.utime(site / "torch" / "__init__.py", (1, 1))
    assert not found().compiles_anew


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written(site, monkeypatch):
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE")
    (site / "torch").chmod(0o555)
    assert found().compiles_anew


def test_the_folder_is_the_users_alone_and_one_for_each_torch(site, tmp_path):
    one = byte_code_variables(found())[VARIABLE]
    assert Path(one).is_dir() and Path(one).is_relative_to(tmp_path / "cache")
    other = Interpreter(found().path, "2.10.0", "cpu", "--python", compiles_anew=True)
    assert byte_code_variables(other)[VARIABLE] != one
    assert byte_code_variables(Interpreter(found().path, "2.9.1", "cpu", "--python")) == {}
    if os.name == "posix":
        Path(one).chmod(0o777)  # somebody else could put code there
        assert byte_code_variables(found()) == {}
        Path(one).chmod(0o755)
    Path(one).rmdir()
    Path(one).write_text("")
    assert byte_code_variables(found()) == {}


def test_it_is_kept_for_what_is_installed_and_not_for_the_users_own_files(site, tmp_path):
    mine, kept = tmp_path / "mine", tmp_path / "kept"
    mine.mkdir()
    (mine / "helper.py").write_text("")
    code = LOADS.format(start=str(START), mine=str(mine))

    def run(**variables):
        return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60,
                              env={**os.environ, **variables}).stdout

    assert run(**{VARIABLE: str(kept)}) == "2.9.1 True None\n"
    names = {file.name.partition(".")[0] for file in kept.rglob("*.pyc")}
    assert names == {"__init__", "version", "neighbour"} and not list(site.rglob("*.pyc")) and not list(mine.rglob("*.pyc"))
    (site / "torch" / "version.py").write_text("__version__ = '2.9.1.post'\ncuda = None\n")
    assert run(**{VARIABLE: str(kept)}) == "2.9.1.post True None\n"  # a file that changed is compiled anew
    assert run() == "2.9.1.post True None\n"


RECORDS = """
import importlib, sys
sys.path.insert(0, {probe!r})
import torch
from recording import Recorder
with Recorder(activities=[torch.profiler.ProfilerActivity.CPU]):
    torch.ones(1)
assert not [name for name in ("torch._inductor", "torch._dynamo") if name in sys.modules]
torch._inductor  # still comes when it is asked for
assert "torch._inductor" in sys.modules
with Recorder(activities=[torch.profiler.ProfilerActivity.CPU]):
    torch.ones(1)
"""


def test_a_recording_imports_no_compiler():
    pytest.importorskip("torch")
    subprocess.run([sys.executable, "-c", RECORDS.format(probe=str(START.parent))], check=True, timeout=120)

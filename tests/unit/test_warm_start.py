"""Processes that the tests start as forks of themselves."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import warm_start

PROGRAM = "import sys\nprint('fork' if 'torch' in sys.modules else 'interpreter', sys.argv[1:])\n"


def started(tmp_path: Path) -> str:
    program = tmp_path / "start.py"
    program.write_text(PROGRAM)
    process = warm_start.Forked([sys.executable, str(program), "one", "two"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                env={"PATH": "/usr/bin"}, cwd=tmp_path)
    said, _ = process.communicate(timeout=60.0)
    assert process.returncode == 0
    return str(said.decode().strip())


@pytest.mark.parametrize(("lost", "how"), [(False, "fork"), (True, "interpreter")])
def test_a_fork_in_which_no_backward_pass_can_be_made_becomes_a_fresh_interpreter(monkeypatch, tmp_path, lost, how):
    monkeypatch.setattr(warm_start, "lost_autograd", lambda: lost)
    assert started(tmp_path) == f"{how} ['one', 'two']"


def refuse(_tensor: torch.Tensor) -> None:
    raise RuntimeError("Unable to handle autograd's threading in combination with fork-based multiprocessing")


def abort(_tensor: torch.Tensor) -> None:
    os.abort()


@pytest.mark.parametrize("backward", [refuse, abort])
def test_a_torch_that_is_built_for_cuda_is_asked_for_a_backward_pass(monkeypatch, backward):
    monkeypatch.setattr(torch, "version", SimpleNamespace(cuda="13.0"))
    monkeypatch.setattr(torch.Tensor, "backward", lambda _tensor: None)
    assert not warm_start.lost_autograd()
    monkeypatch.setattr(torch.Tensor, "backward", backward)
    assert warm_start.lost_autograd()
    monkeypatch.setattr(torch, "version", SimpleNamespace(cuda=None))
    assert not warm_start.lost_autograd(), "there no process starts threads for it"

"""Codex and Copilot CLI find the same two skills; both read the manifest in the root."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from claude_code import CLIENTS

SKILLS = ("optimize", "profile-kernel")


def client(name: str, home: Path, *arguments: str | Path) -> str:
    """One command of a client in a temporary home; its stdout."""
    home.mkdir(exist_ok=True)
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "COPILOT_AUTO_UPDATE": "false", "CI": "1"}
    command = [str(CLIENTS / name), *map(str, arguments)]
    done = subprocess.run(command, env=env, cwd=home, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_codex_lists_both_skills(plugin: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    client("codex", home, "plugin", "marketplace", "add", plugin)
    client("codex", home, "plugin", "add", "kernelwright@kernelwright")
    assert "installed, enabled" in client("codex", home, "plugin", "list")
    seen = client("codex", home, "debug", "prompt-input", "hello")
    for skill in SKILLS:
        assert f"kernelwright:{skill}" in seen
    client("codex", home, "plugin", "remove", "kernelwright@kernelwright")
    assert "kernelwright:optimize" not in client("codex", home, "debug", "prompt-input", "hello")


def test_copilot_installs_the_plugin_and_lists_both_skills(plugin: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    client("copilot", home, "plugin", "marketplace", "add", plugin)
    assert "Installed 2 skills" in client("copilot", home, "plugin", "install", "kernelwright@kernelwright")
    assert "kernelwright@kernelwright" in client("copilot", home, "plugin", "list")
    seen = client("copilot", home, "skill", "list")
    for skill in SKILLS:
        assert f"  {skill} - " in seen
    client("copilot", home, "plugin", "uninstall", "kernelwright@kernelwright")
    assert "  optimize - " not in client("copilot", home, "skill", "list")


@pytest.mark.parametrize("name", ["claude", "codex", "copilot"])
def test_the_client_is_the_one_that_was_asked_for(name: str, tmp_path: Path) -> None:
    wanted = {"claude": "2.1.329", "codex": "0.169.0", "copilot": "1.0.102"}[name]
    assert wanted in client(name, tmp_path / "home", "--version")

"""The plugin in the real Claude Code, driven by a scripted model: `make test-clients` installs the client and runs this."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from scripted_model import ScriptedModel, Turn, runs, says, scripted_model

ROOT = Path(__file__).resolve().parents[2]
CLAUDE = ROOT / "build" / "clients" / "node_modules" / ".bin" / "claude"
QUIET = ("DISABLE_TELEMETRY", "DISABLE_AUTOUPDATER", "DISABLE_ERROR_REPORTING", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC")
PARTS = (
    ".claude-plugin",
    "plugin.json",
    "README.md",
    "requirements.lock",
    "skills",
    "scripts",
    "src",
    "knowledge",
    "templates",
    "agents",
    "hooks",
)


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    """What a user gets: the plugin's files in a folder whose name has a space."""
    assert CLAUDE.exists(), "run `make test-clients`: it installs the client first"
    folder = tmp_path / "the plugin"
    folder.mkdir()
    for part in PARTS:
        source = ROOT / part
        if source.is_dir():
            shutil.copytree(source, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
        elif source.exists():
            shutil.copy(source, folder / part)
    return folder


def claude(tmp_path: Path, *arguments: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """The client with an environment built from nothing."""
    home = tmp_path / "home"
    work = tmp_path / "work"
    home.mkdir(exist_ok=True)
    work.mkdir(exist_ok=True)
    env = {"PATH": os.environ["PATH"], "HOME": str(home), **dict.fromkeys(QUIET, "1"), **variables}
    command = [str(CLAUDE), *map(str, arguments)]
    return subprocess.run(command, env=env, cwd=work, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=200)


def session(tmp_path: Path, plugin: Path, prompt: str, *turns: Turn) -> tuple[ScriptedModel, list[dict[str, Any]]]:
    """One session: the model's server with the requests it saw, and the client's own events."""
    with scripted_model(*turns) as model:
        variables = {"ANTHROPIC_BASE_URL": model.url, "ANTHROPIC_API_KEY": "dummy", "KERNELWRIGHT_PYTHON": sys.executable}
        options = ("--output-format", "stream-json", "--verbose", "--max-turns", "8", "--permission-prompts", "none")
        done = claude(tmp_path, "-p", prompt, "--plugin-dir", plugin, *options, **variables)
    assert done.returncode == 0, done.stdout + done.stderr
    return model, [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def words(request: dict[str, Any]) -> str:
    """All text of a request's messages, tool results included."""
    found: list[str] = []

    def gather(value: Any) -> None:
        if isinstance(value, str):
            found.append(value)
        elif isinstance(value, dict):
            for key in ("text", "content"):
                gather(value.get(key))
        elif isinstance(value, list):
            for item in value:
                gather(item)

    gather([message["content"] for message in request["messages"]])
    return "\n".join(found)


def test_the_client_finds_nothing_to_mend(tmp_path: Path, plugin: Path) -> None:
    done = claude(tmp_path, "plugin", "validate", plugin, "--strict")
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_plugin_loads_with_its_skills(tmp_path: Path, plugin: Path) -> None:
    _, events = session(tmp_path, plugin, "hello", says("hello"))
    (start,) = [event for event in events if event.get("type") == "system" and event.get("subtype") == "init"]
    assert [found["name"] for found in start["plugins"] if found["name"] == "kernelwright"] == ["kernelwright"]
    assert not start.get("plugin_errors")
    assert {"kernelwright:optimize", "kernelwright:profile-kernel"} <= {*start["slash_commands"], *start.get("skills", [])}


@pytest.mark.parametrize(
    ("prompt", "title"), [("/optimize my_model.py --b=32", "# Optimize a workload"), ("/profile-kernel v4 --b=32", "# Profile a workload")]
)
def test_a_skill_arrives_with_its_substitutions(tmp_path: Path, plugin: Path, prompt: str, title: str) -> None:
    model, _ = session(tmp_path, plugin, prompt, says("done"))
    text = words(model.requests[0])
    assert title in text
    assert f"Asked for: {prompt.split(' ', 1)[1]}" in text
    assert f'python3 "{plugin}/scripts/' in text
    assert "${CLAUDE" not in text and "$ARGUMENTS" not in text


def test_a_command_of_the_skill_runs_unasked_and_its_output_reaches_the_model(tmp_path: Path, plugin: Path) -> None:
    command = f'python3 "{plugin}/scripts/optimize.py" --help'
    other = f'python3 "{plugin}/scripts/_entry.py" --help'
    model, _ = session(tmp_path, plugin, "/optimize w.py", runs(command), runs(other), says("done"))
    assert "usage: optimize.py" in words(model.requests[1])
    assert "requires approval" in words(model.requests[2]), "a command that no rule covers must be asked for"

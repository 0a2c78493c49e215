"""Claude Code as a test drives it: an environment built from nothing, a temporary home, a scripted model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from scripted_model import ScriptedModel, Step, scripted_model

ROOT = Path(__file__).resolve().parents[2]
CLIENTS = ROOT / "build" / "clients" / "node_modules" / ".bin"
QUIET = ("DISABLE_TELEMETRY", "DISABLE_AUTOUPDATER", "DISABLE_ERROR_REPORTING", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC")
DENIED = ("requires approval", "Permission to use", "has been denied", "was denied")


class Session:
    """What one run of the client left: the requests that the model saw and the client's own events."""

    def __init__(self, model: ScriptedModel, events: list[dict[str, Any]]) -> None:
        self.requests = model.requests
        self.events = events

    def said(self, place: int) -> str:
        """All text of one request's messages; -1 is the last."""
        return words(self.requests[place])

    @property
    def all(self) -> str:
        """All text that the model ever saw."""
        return "\n".join(map(words, self.requests))

    @property
    def start(self) -> dict[str, Any]:
        """The client's first event: what it loaded."""
        (start,) = [event for event in self.events if event.get("type") == "system" and event.get("subtype") == "init"]
        return start

    @property
    def end(self) -> dict[str, Any]:
        """The client's last event."""
        return next(event for event in reversed(self.events) if event.get("type") == "result")

    def denied(self) -> list[str]:
        """Permissions that were denied, by the client's own count and in words."""
        return [*map(str, self.end.get("permission_denials", [])), *(word for word in DENIED if word in self.all)]


class Client:
    """One user of Claude Code: a home and a project folder."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.work = folder / "work"
        self.home.mkdir()
        self.work.mkdir()
        self.lock = folder / "device.lock"

    def run(self, *arguments: str | Path, cwd: Path | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
        """One command of the client."""
        env = {"PATH": os.environ["PATH"], "HOME": str(self.home), **dict.fromkeys(QUIET, "1"), **variables}
        command = [str(CLIENTS / "claude"), *map(str, arguments)]
        return subprocess.run(command, env=env, cwd=cwd or self.work, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=200)

    def session(
        self,
        prompt: str,
        *steps: Step,
        plugin: Path | None = None,
        agents: Mapping[str, Sequence[Step]] | None = None,
        options: Sequence[str] = (),
        **variables: str,
    ) -> Session:
        """One session. plugin: the folder to load; None: what is installed."""
        with scripted_model(*steps, agents=agents) as model:
            known = {
                "ANTHROPIC_BASE_URL": model.url,
                "ANTHROPIC_API_KEY": "dummy",
                "KERNELWRIGHT_PYTHON": sys.executable,
                "KERNELWRIGHT_CLOCKS": "none",
                "KERNELWRIGHT_LOCK": str(self.lock),
                "KERNELWRIGHT_CACHE": os.environ["KERNELWRIGHT_CACHE"],  # the CPU's peaks are measured once
                "OMP_NUM_THREADS": os.environ["OMP_NUM_THREADS"],
                "CUDA_VISIBLE_DEVICES": "",
            }
            form = ("--output-format", "stream-json", "--verbose", "--max-turns", "12", "--permission-prompts", "none")
            load = ("--plugin-dir", plugin) if plugin else ()
            done = self.run("-p", prompt, *load, *form, *options, **{**known, **variables})
        assert done.returncode == 0, done.stdout + done.stderr
        return Session(model, [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")])


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

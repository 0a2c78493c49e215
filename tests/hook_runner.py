"""Starts a hook as a client does: the command of hooks.json, one JSON object on stdin, an environment built from nothing."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
HOOKS = ROOT / "hooks"
SCRIPTS = ROOT / "scripts"

if str(HOOKS) not in sys.path:
    sys.path.append(str(HOOKS))


def command_of(event: str) -> str:
    """The one command of an event."""
    (group,) = json.loads((HOOKS / "hooks.json").read_text())["hooks"][event]
    (entry,) = group["hooks"]
    return str(entry["command"])


def start(event: str, stdin: str | bytes, home: Path, **variables: str) -> subprocess.CompletedProcess[bytes]:
    """One run of an event's hook."""
    words = shlex.split(command_of(event).replace("${CLAUDE_PLUGIN_ROOT}", str(ROOT)))
    env = {"PATH": "/usr/bin:/bin", "HOME": str(home), "KERNELWRIGHT_LOCK": str(home / "device.lock"), "TMPDIR": str(home), **variables}
    data = stdin.encode() if isinstance(stdin, str) else stdin
    return subprocess.run(
        [sys.executable, *words[1:]], input=data, env=env, cwd=home if os.access(home, os.X_OK) else "/", capture_output=True, timeout=60
    )


def ask(event: str, home: Path, given: dict[str, Any] | None = None, **variables: str) -> dict[str, Any]:
    """The hook's answer; {} when it says nothing. It must exit 0 and leave stderr empty."""
    done = start(event, json.dumps({"hook_event_name": event, "cwd": str(home), **(given or {})}), home, **variables)
    assert (done.returncode, done.stderr) == (0, b""), done
    answer: dict[str, Any] = json.loads(done.stdout or b"{}")
    return answer


def bash(command: str, **more: Any) -> dict[str, Any]:
    """A Bash call as a hook gets it."""
    return {"tool_name": "Bash", "tool_input": {"command": command}, **more}


def refusal(answer: dict[str, Any]) -> str:
    """Why a call was refused, "" if it was not."""
    decision = answer.get("hookSpecificOutput", {})
    return str(decision["permissionDecisionReason"]) if decision.get("permissionDecision") == "deny" else ""


def context(answer: dict[str, Any]) -> str:
    """What the model is told."""
    return str(answer.get("hookSpecificOutput", {}).get("additionalContext", ""))


def objection(answer: dict[str, Any]) -> str:
    """Why the end was refused, "" if it was not."""
    return str(answer["reason"]) if answer.get("decision") == "block" else ""


def script(name: str) -> str:
    """A command's beginning, as the skills spell it."""
    return f'python3 "{SCRIPTS}/{name}.py"'

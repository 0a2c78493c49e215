"""PreToolUse on Bash: one profile or timing run at a time, no clock change left behind, and each agent keeps to its own verbs."""

from __future__ import annotations

import os
from typing import Any

from device_lock import holder
from recognise import SCRIPTS, clock_changes, timing_runs, verbs
from shell_commands import commands

AGENT_VERBS = {"profiler": ("profile_kernel", "compare", "doctor")}
"""Agents of this plugin that have Bash -> the verbs they may run. Clients do not enforce `Bash(...)` in an agent's tools: this does."""


def answer(given: dict[str, Any]) -> dict[str, Any] | None:
    """The refusal, or None: then the client's own permissions decide."""
    tool_input = given.get("tool_input")
    text = tool_input.get("command") if isinstance(tool_input, dict) else None
    if not isinstance(text, str):
        return None
    cwd = str(given.get("cwd") or os.getcwd())
    reason = _beyond_the_agent(str(given.get("agent_type") or ""), text, cwd) or _clocks(text) or _second_run(text, cwd)
    if not reason:
        return None
    decision = {"hookEventName": "PreToolUse", "permissionDecision": "deny", "permissionDecisionReason": "kernelwright: " + reason}
    return {"hookSpecificOutput": decision}


def _second_run(text: str, cwd: str) -> str:
    runs = timing_runs(text, cwd)
    other = holder() if runs else None
    if not other:
        return ""
    return (
        "%s was not started: another profile or timing run is under way (process %s: %s, since %s), and two at once would spoil both. "
        "Do next: wait until it has ended (it frees the device by itself; read its output or wait for its process), then give the same "
        "command again. If it is a leftover that nobody waits for, end it with: kill %s"
        % (runs[0], other["pid"], other["what"], other["since"], other["pid"])
    )


def _clocks(text: str) -> str:
    if "nvidia-smi" not in text:
        return ""
    changed, left = clock_changes(text)
    if changed and os.environ.get("KERNELWRIGHT_CLOCKS") == "none":
        return ("KERNELWRIGHT_CLOCKS=none forbids clock changes on this machine. Do next: measure without; "
                "pass --clocks none, and say in the report that clocks were not locked.")
    if not left:
        return ""
    scripts = [os.path.join(SCRIPTS, name) for name in ("lock-gpu-clock.sh", "reset-gpu-clock.sh")]
    by_hand = " By hand: %s, and %s afterwards." % tuple(scripts) if all(map(os.path.exists, scripts)) else ""
    return (
        "nvidia-smi would change the GPU's %s setting, and nothing in this command undoes it. Do next: pass --clocks lock to the "
        "kernelwright script, which locks for the run and undoes it on any exit.%s Or put a reset (nvidia-smi -rgc) into the same "
        "command."
        % (" and ".join(sorted(left)), by_hand)
    )


def _beyond_the_agent(agent: str, text: str, cwd: str) -> str:
    plugin, _, name = agent.rpartition(":")
    allowed = AGENT_VERBS.get(name)
    if plugin != "kernelwright" or allowed is None:
        return ""
    run: list[str] = [verb for verb, _ in verbs(text, cwd)]
    if len(run) == len(commands(text)) == 1 and run[0] in allowed:
        return ""
    return ("the %s runs one of %s at a time and nothing else. Do next: give that command alone, as your instructions spell it; "
            "leave everything else to the agent that started you." % (name, ", ".join(verb + ".py" for verb in allowed)))

"""Stop and SubagentStop: clocks left locked, a profiler's answer that is no contract, a speed-up claimed with no verdict behind it.

Each is said once: a turn that already goes on because of a stop hook is let go (`stop_hook_active`), so nothing loops.
"""

from __future__ import annotations

import os
from typing import Any

NO_CONTRACT = "No contract: "
"""How the profiler begins its answer when there is none, with the error's message and fix behind it."""
SLACK = 1.05
"""A claim may be this much above what was measured: people round."""


def answer(given: dict[str, Any]) -> dict[str, Any] | None:
    """The objection, or None."""
    if given.get("stop_hook_active"):
        return None
    text = given.get("last_assistant_message")
    text = text if isinstance(text, str) else ""
    sub = given.get("hook_event_name") == "SubagentStop"
    reason = ""
    if sub and given.get("agent_type") == "kernelwright:profiler":
        reason = _no_contract(text)
    reason = reason or _unproved(text, given, sub)
    if not reason and not sub and not given.get("background_tasks"):
        reason = _clocks_left(given)
    return {"decision": "block", "reason": "kernelwright: " + reason} if reason else None


def _no_contract(text: str) -> str:
    from contract_check import check_contract

    text = text.strip()
    if text.startswith(NO_CONTRACT) and len(text) > len(NO_CONTRACT) and len(text.splitlines()) <= 4:
        return ""
    faults = check_contract(text + "\n")
    if not faults:
        return ""
    return (
        "this answer is not the contract in its exact form (%s). Do next: answer with the text of contract.md, unchanged and with nothing "
        "before or after it, no code fence either; if the profile failed, answer with one line: \"%s\" and the error's message and fix."
        % (faults[0], NO_CONTRACT))


def _unproved(text: str, given: dict[str, Any], sub: bool) -> str:
    from claims import claims

    claimed = claims(text)
    if not claimed:
        return ""
    from transcript import measured_speedups

    ours = str(given.get("agent_type") or "").startswith("kernelwright:")
    measured: list[float] = []
    for key in ("agent_transcript_path", "transcript_path") if sub else ("transcript_path",):  # an agent may quote what it was told
        path = given.get(key)
        found = measured_speedups(os.path.expanduser(path), ours) if isinstance(path, str) else None
        measured += found or []
    if not measured or max(claimed) <= max(measured) * SLACK:
        return ""
    best = max(measured)
    behind = "the highest measured in this session is %.2fx" % best if best > 1 else "no verdict in this session supports it"
    return (
        "the answer claims a speed-up of %.2fx, and %s. Do next: judge the candidate (judge.py WORKLOAD CANDIDATE) and report that "
        "verdict's speed-up with its interval, or take the claim back and say that it is not proved." % (max(claimed), behind))


def _clocks_left(given: dict[str, Any]) -> str:
    from clock_record import left_locked
    from recognise import SCRIPTS

    left = left_locked(str(given.get("transcript_path") or ""))
    if not left:
        return ""
    return (
        "the clocks of %s are still locked, and no run needs that any more. Do next: run \"%s\"; if it is refused, tell the user that the "
        "clocks are locked and that an administrator can undo it with: nvidia-smi -rgc"
        % (", ".join("%s (%d MHz)" % row for row in left), os.path.join(SCRIPTS, "reset-gpu-clock.sh")))

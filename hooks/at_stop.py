"""Stop and SubagentStop: clocks left locked, a contract that is not word for word the one that was measured, a profiler's answer that is
none at all, a speed-up claimed with no verdict behind it.

Each is said once: a turn that already goes on because of a stop hook is let go (`stop_hook_active`), so nothing loops.
"""

from __future__ import annotations

import os
import time
from typing import Any, Callable

NO_CONTRACT = "No contract: "
"""How the profiler begins its answer when there is none, with the error's message and fix behind it."""
WRITTEN_S = 2.0
"""The client may still be writing its transcript when it asks: a Stop hook saw it without the last tool's result (Claude Code 2.1.329)."""
POLL_S = 0.1
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
    until = time.monotonic() + WRITTEN_S
    for look in (_altered, _unproved):
        reason = reason or _once_written(lambda look=look: look(text, given, sub), given, until)
    if not reason and not sub and not given.get("background_tasks"):
        reason = _clocks_left(given)
    return {"decision": "block", "reason": "kernelwright: " + reason} if reason else None


def _once_written(look: Callable[[], tuple[str, bool]], given: dict[str, Any], until: float) -> str:
    """The objection of (objection, whether the transcript may lack what speaks otherwise), once nothing can be missing or at `until`. A
    transcript is read again only when it has changed."""
    seen = _state(given)
    objection, doubtful = look()
    while doubtful and time.monotonic() < until:
        time.sleep(POLL_S)
        now = _state(given)
        if now != seen:
            seen = now
            objection, doubtful = look()
    return objection


def _state(given: dict[str, Any]) -> list[tuple[int, int]]:
    """Size and time of change of the session's transcripts."""
    found = []
    for key in ("transcript_path", "agent_transcript_path"):
        path = given.get(key)
        try:
            status = os.stat(os.path.expanduser(path)) if isinstance(path, str) else None
        except (OSError, ValueError):
            status = None
        found.append((status.st_size, status.st_mtime_ns) if status else (-1, -1))
    return found


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


def _altered(text: str, given: dict[str, Any], sub: bool) -> tuple[str, bool]:
    """A contract in the answer that no result of the session holds like that, while it holds one of the same heading. Doubtful: none is
    like it."""
    if "## Profile: " not in text:
        return "", False
    from transcript import contracts, results

    said = [contract for contract in contracts(text) if "### Stages" in contract]
    if not said:
        return "", False
    path = given.get("agent_transcript_path" if sub else "transcript_path")
    measured = [contract for found in results(os.path.expanduser(path)) for contract in contracts(found)] if isinstance(path, str) else []
    doubtful = False
    for contract in said:
        same = [other for other in measured if other.split("\n")[0] == contract.split("\n")[0]]
        if same and not any(_same(contract, other) for other in same):
            words = ("the contract in this answer is not word for word the one that was measured (%s). Do next: answer again with the text "
                     "of contract.md, every line of it unchanged; what you have to say comes after it.")
            return words % _first_difference(contract, same[-1]), True
        doubtful = doubtful or not same
    return "", doubtful


def _same(said: str, measured: str) -> bool:
    """Either may go on: an answer with a numbered list of its own, a script's contract with the table of its heaviest kernels."""
    from contract_check import check_contract

    return (said + "\n").startswith(measured + "\n") or ((measured + "\n").startswith(said + "\n") and not check_contract(said + "\n"))


def _first_difference(said: str, measured: str) -> str:
    ours, theirs = said.split("\n"), measured.split("\n")
    place = next((number for number, pair in enumerate(zip(ours, theirs)) if pair[0] != pair[1]), min(len(ours), len(theirs)))
    if place >= len(ours):
        return "this is missing: %s" % next((line for line in theirs[place:] if line), "")[:200]
    return "its line %d is: %s" % (place + 1, ours[place][:200])


def _unproved(text: str, given: dict[str, Any], sub: bool) -> tuple[str, bool]:
    """A speed-up that nothing of the session supports: doubtful, while a verdict may be missing."""
    from claims import claims

    claimed = claims(text)
    if not claimed:
        return "", False
    from transcript import measured_speedups

    ours = str(given.get("agent_type") or "").startswith("kernelwright:")
    measured: list[float] = []
    for key in ("agent_transcript_path", "transcript_path") if sub else ("transcript_path",):  # an agent may quote what it was told
        path = given.get(key)
        found = measured_speedups(os.path.expanduser(path), ours) if isinstance(path, str) else None
        measured += found or []
    if not measured or max(claimed) <= max(measured) * SLACK:
        return "", False
    best = max(measured)
    behind = "the highest measured in this session is %.2fx" % best if best > 1 else "no verdict in this session supports it"
    return (
        "the answer claims a speed-up of %.2fx, and %s. Do next: judge the candidate (judge.py WORKLOAD CANDIDATE) and report that "
        "verdict's speed-up with its interval, or take the claim back and say that it is not proved." % (max(claimed), behind)), True


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

"""PostToolUse and PostToolUseFailure on Bash: the contract after a profile, the verdict after a judgement, the result after the loop.

They are read from the folder that the script printed, and only in their exact form: whatever else a path names is not shown.
"""

from __future__ import annotations

import json
import os
import re
from typing import Any, Iterator

from recognise import verbs

FILE_LIMIT = 4_000_000
VERDICTS = ("FASTER", "SLOWER", "SAME", "AMBIGUOUS", "WRONG", "CHEAT", "FAILED")
_REPORT = re.compile(r"^report: (.+)$", re.MULTILINE)
_NEXT = {
    "FASTER": "Do next: report the speed-up with its interval and precision, exactly as here.",
    "SLOWER": "Do next: drop the candidate; report no speed-up.",
    "SAME": "Do next: report no speed-up; try another idea, or stop.",
    "AMBIGUOUS": "Do next: report no speed-up; the noise hides it. Judge again on a quiet machine or with a longer --max-timing.",
    "WRONG": "Do next: mend the candidate, never the tolerance or the workload; report no speed-up.",
    "CHEAT": "Do next: discard the candidate and tell the user why; report no speed-up.",
    "FAILED": "Do next: mend what the reason names, then judge again; report no speed-up.",
}


def answer(given: dict[str, Any]) -> dict[str, Any] | None:
    """Context for the model, or None."""
    tool_input = given.get("tool_input")
    text = tool_input.get("command") if isinstance(tool_input, dict) else None
    output = _output(given)
    if not isinstance(text, str) or not output:
        return None
    run = [verb for verb, _ in verbs(text, str(given.get("cwd") or os.getcwd()))]
    parts = []
    for report, data in _reports(output):
        if "profile_kernel" in run and (contract := _contract(report, output)):
            parts.append(contract)
        if "judge" in run and (verdict := _verdict(report)):
            parts.append(verdict)
        if "optimize" in run and data and (result := _result(data)):
            parts.append(result)
    if not parts:
        return None
    event = "PostToolUseFailure" if given.get("hook_event_name") == "PostToolUseFailure" else "PostToolUse"
    return {"hookSpecificOutput": {"hookEventName": event, "additionalContext": "\n\n".join(parts)}}


def _output(given: dict[str, Any]) -> str:
    """All that the command printed; a failed one's is in `error`."""
    response = given.get("tool_response")
    parts = [response.get(key) for key in ("stdout", "stderr")] if isinstance(response, dict) else [response]
    return "\n".join(part for part in (*parts, given.get("error")) if isinstance(part, str))


def _reports(output: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """(report's path, the script's JSON object or {}) of each run that printed one."""
    seen = set()
    for line in output.splitlines():
        if line.startswith("{") and '"report"' in line:
            try:
                data = json.loads(line)
            except ValueError:
                continue
            if isinstance(data, dict) and isinstance(data.get("report"), str) and data["report"] not in seen:
                seen.add(data["report"])
                yield data["report"], data
    for path in _REPORT.findall(output):
        if path not in seen:
            seen.add(path)
            yield path, {}


def _contract(report: str, output: str) -> str:
    from contract_check import check_contract

    path = os.path.join(os.path.dirname(report), "contract.md")
    text = _read(path)
    if not text:
        return ""
    faults = check_contract(text)
    if faults:
        return ("kernelwright: %s breaks the contract's form (%s). Do next: report this as a fault of kernelwright; use report.md."
                % (path, faults[0]))
    advice = "Do next: hand it to the user unchanged, then at most three sentences, each resting on a figure in it. Details: %s" % report
    if text.strip() in output:
        return "kernelwright: the contract above is complete and in its exact form (%s). %s" % (path, advice)
    return "kernelwright: the contract of this profile (%s). %s\n\n%s" % (path, advice, text)


def _verdict(report: str) -> str:
    data = _json(os.path.join(os.path.dirname(report), "verdict.json"))
    name = data.get("verdict")
    if name not in VERDICTS:
        return ""
    lines = ["kernelwright: the verdict on %s is %s%s." % (_line(data.get("candidate")), name, _gain(data))]
    reasons = data.get("reasons")
    lines += ["- " + _line(reason) for reason in (reasons if isinstance(reasons, list) else [])[:8]]
    return "\n".join([*lines, "%s Details: %s" % (_NEXT[name], report)])


def _result(data: dict[str, Any]) -> str:
    """An optimisation's own JSON object."""
    kept = data.get("kept")
    if not isinstance(kept, list) or data.get("status") != "ok":
        return ""
    if not kept:
        return ("kernelwright: nothing better was found (kept: [], speed-up 1.0). Do next: say so, claim no speed-up, and name the "
                "bottleneck from the contract in %s" % _line(data.get("contract")))
    return ("kernelwright: kept %s%s. Do next: report the speed-up with its interval and precision; the user imports %s; each candidate's "
            "verdict is in %s" % (", ".join(map(_line, kept)), _gain(data), _line(data.get("optimized")), _line(data.get("report"))))


def _gain(data: dict[str, Any]) -> str:
    speedup, interval = data.get("speedup"), data.get("interval")
    if not isinstance(speedup, (int, float)):
        return ""
    between = ""
    if isinstance(interval, list) and len(interval) == 2 and all(isinstance(end, (int, float)) for end in interval):
        between = ", 95%% interval %.3f to %.3f" % (interval[0], interval[1])
    precision = data.get("precision")
    return ", speed-up %.3fx%s%s" % (speedup, between, ", %s precision allowed" % precision if isinstance(precision, str) else "")


def _line(value: Any) -> str:
    """One printable line of something that may be hostile."""
    return "".join(c if c.isprintable() else " " for c in str(value))[:400]


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read(FILE_LIMIT)
    except (OSError, ValueError):
        return ""


def _json(path: str) -> dict[str, Any]:
    try:
        data = json.loads(_read(path) or "{}")
    except ValueError:
        return {}
    return data if isinstance(data, dict) else {}

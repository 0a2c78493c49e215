"""Which commands matter here: kernelwright's verbs, the profilers, and clock changes by nvidia-smi."""

from __future__ import annotations

import os
import re

from shell_commands import Command, commands

SCRIPTS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "scripts")
TIMING_VERBS = ("profile_kernel", "optimize", "judge", "bench")
"""The verbs that run and time a workload; each holds the device lock while it does."""
STORED = (".ncu-rep", ".nsys-rep", ".sqlite", ".json", ".json.gz")
"""Ends of targets that are only read."""
NCU_READS = ("-i", "--import", "-h", "--help", "-v", "--version")
NSYS_RUNS = ("profile", "launch", "start")
# nvidia-smi's options that change clocks -> those that undo it; a later change of the same kind counts as undone for the last two.
CLOCKS = {
    "gpu": (("-lgc", "--lock-gpu-clocks"), ("-rgc", "--reset-gpu-clocks")),
    "memory": (("-lmc", "--lock-memory-clocks", "-lmcd", "--lock-memory-clocks-deferred"),
               ("-rmc", "--reset-memory-clocks", "-rmcd", "--reset-memory-clocks-deferred")),
    "application": (("-ac", "--applications-clocks"), ("-rac", "--reset-applications-clocks")),
    "power limit": (("-pl", "--power-limit"), ()),
    "persistence": (("-pm", "--persistence-mode"), ()),
}
_PYTHON = re.compile(r"python(\d+(\.\d+)?)?|pypy3?")
_PYTHON_VALUED = ("-X", "-W", "--check-hash-based-pycs")


def verb_of(command: Command, cwd: str) -> tuple[str, list[str]] | None:
    """(verb, arguments) if this command runs one of kernelwright's verbs. cwd: the folder that relative paths start from."""
    words = command.words
    if _PYTHON.fullmatch(command.name):
        place = 1
        while place < len(words) and words[place].startswith("-") and words[place] not in ("-m", "-c"):
            place += 2 if words[place] in _PYTHON_VALUED else 1
        words = words[place:]
        if words[:2] == ["-m", "kernelwright"]:
            words = words[1:]
    if not words:
        return None
    if os.path.basename(words[0]) == "kernelwright":
        return (words[1].replace("-", "_"), words[2:]) if len(words) > 1 else None
    name, extension = os.path.splitext(os.path.basename(words[0]))
    if extension != ".py":
        return None
    folder = os.path.dirname(os.path.join(cwd, words[0]))
    if os.path.realpath(folder) == os.path.realpath(SCRIPTS) or os.path.isfile(os.path.join(folder, "_entry.py")):
        return name, words[1:]
    return None


def verbs(text: str, cwd: str) -> list[tuple[str, list[str]]]:
    """The verbs that a shell text runs, each with its arguments."""
    return [found for _, found in _each(text, cwd) if found]


def timing_runs(text: str, cwd: str) -> list[str]:
    """Names of the profilers and timing verbs that a shell text would start; help and the reading of stored reports are none."""
    names = []
    for command, found in _each(text, cwd):
        if found:
            verb, arguments = found
            own = arguments[: arguments.index("--")] if "--" in arguments else arguments
            harmless = any(word in ("-h", "--help") for word in own) or any(word.endswith(STORED) for word in own[:1])
            if verb in TIMING_VERBS and own and not harmless:
                names.append(verb + ".py")
        elif command.name in ("ncu", "nv-nsight-cu-cli"):
            own = _own_options(command.words[1:])
            reads = any(word.split("=")[0] in NCU_READS or word.startswith(("--query-", "--list-")) for word in own)
            if command.words[1:] and not reads:
                names.append("ncu")
        elif command.name == "nsys" and command.words[1:2] and command.words[1] in NSYS_RUNS:
            names.append("nsys")
    return names


def clock_changes(text: str) -> tuple[set[str], set[str]]:
    """(kinds changed, kinds changed and not undone later in the same text)."""
    changed: set[str] = set()
    left: set[str] = set()
    late: set[str] = set()
    for command in commands(text):
        if command.name != "nvidia-smi":
            continue
        options = {word.split("=")[0] for word in command.words[1:]}
        for kind, (change, undo) in CLOCKS.items():
            if options & set(change):
                undone = not undo and kind in changed
                changed.add(kind)
                (left.discard if undone else left.add)(kind)
            if options & set(undo):
                left.discard(kind)
                if command.late:
                    late.add(kind)
    return changed, left - late


def _own_options(words: list[str]) -> list[str]:
    """A profiler's own words, up to about where the program that it runs begins: the first word that no option stands before."""
    for place, word in enumerate(words):
        if not word.startswith("-") and (place == 0 or not words[place - 1].startswith("-") or "=" in words[place - 1]):
            return words[:place]
    return words


def _each(text: str, cwd: str) -> list[tuple[Command, tuple[str, list[str]] | None]]:
    rows = []
    for command in commands(text):
        if command.name == "cd" and len(command.words) > 1:
            cwd = os.path.join(cwd, command.words[1])
        rows.append((command, verb_of(command, cwd)))
    return rows

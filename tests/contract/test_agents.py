"""The agents: what clients read of them, that they get no more tools than they need, and that every command in them exists."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from at_stop import NO_CONTRACT
from before_bash import AGENT_VERBS

import hook_runner
from front_matter import parts
from kernelwright.cli.main import VERBS, build_parser
from kernelwright.model.verdict import ACCEPTABLE

ROOT = hook_runner.ROOT
AGENTS = sorted(ROOT.glob("agents/*.md"))
TOOLS = {
    "profiler": {"Bash", "Read"},
    "kernel-engineer": {"Read", "Grep", "Glob", "Write", "Edit"},
    "reviewer": {"Read", "Grep", "Glob"},
}
"""What each needs. An agent without Bash can neither profile nor judge, whatever it is told."""
COMMAND = re.compile(r'python3 "\$\{CLAUDE_PLUGIN_ROOT\}/scripts/(\w+)\.py"[^\n`]*')
VERDICT_WORDS = ("FASTER", "SLOWER", "SAME", "AMBIGUOUS", "WRONG", "CHEAT", "FAILED")


def each(check: str) -> pytest.MarkDecorator:
    """Once for each agent."""
    assert check
    return pytest.mark.parametrize("agent", AGENTS, ids=lambda path: path.stem)


def test_the_agents_are_there() -> None:
    assert {agent.stem for agent in AGENTS} == set(TOOLS)


@each("front matter")
def test_front_matter(agent: Path) -> None:
    matter, body = parts(agent)
    assert set(matter) == {"name", "description", "tools"}
    assert matter["name"] == agent.stem
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", str(matter["name"]))
    description = str(matter["description"])
    assert "Use when " in description and len(description) <= 1024
    assert not re.search(r"\b(I|you|your|we)\b", description), "third person"
    assert {tool.strip() for tool in str(matter["tools"]).split(",")} == TOOLS[agent.stem]
    assert "(" not in str(matter["tools"]), "clients do not enforce Bash(...) here: it would only look like a limit"
    assert len(body.splitlines()) < 100
    assert "## Stop" in body


@each("commands")
def test_commands_exist_and_parse(agent: Path) -> None:
    _, body = parts(agent)
    commands = list(COMMAND.finditer(body))
    assert body.count("CLAUDE_PLUGIN_ROOT") == len(commands), "a path that is not a command"
    assert bool(commands) is (agent.stem != "reviewer")
    for match in commands:
        verb = match[1]
        assert (ROOT / "scripts" / f"{verb}.py").is_file() and verb in VERBS
        arguments = shlex.split(match[0])[2:]
        _, unknown = build_parser(verb).parse_known_args(arguments)
        assert unknown == [], match[0]
        if "Bash" in TOOLS[agent.stem]:
            assert verb in AGENT_VERBS[agent.stem], "the hook would refuse it"


def test_the_hook_knows_every_agent_that_has_a_shell() -> None:
    assert set(AGENT_VERBS) == {name for name, tools in TOOLS.items() if "Bash" in tools}
    for verbs in AGENT_VERBS.values():
        assert set(verbs) <= set(VERBS) and not {"judge", "optimize"} & set(verbs)


@each("names")
def test_names_in_the_body_exist(agent: Path) -> None:
    """Options, verdicts, JSON keys and files that an agent is told of."""
    _, body = parts(agent)
    code = " ".join(
        path.read_text()
        for folder in ("src", "templates", "docs")
        for path in sorted((ROOT / folder).rglob("*.*"))
        if path.suffix in (".py", ".j2", ".md")
    )
    spans = [
        span for span in re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", body, flags=re.DOTALL)) if "CLAUDE_PLUGIN_ROOT" not in span
    ]
    assert len(spans) >= 3
    own = {
        NO_CONTRACT,
        NO_CONTRACT.strip(),
        "Review: holds",
        "Review: holds with reservations",
        "Review: does not hold",
        "candidates/<idea>.py",
        "report: PATH",
        "one call: ...",
        "No contract: ",
    }
    for span in spans:
        word = span.split("(")[0].split("=")[0].split(" DIR")[0].strip().removeprefix("*")
        assert span in own or word in code, span
    assert not set(re.findall(r"\b[A-Z]{4,}\b", body)) - {
        *VERDICT_WORDS,
        "TARGET",
        "VERSION",
        "CANDIDATE",
        "WORKLOAD",
        "NAME",
        "VALUE",
        "PATH",
        "PRECISION",
        "VERSIONS",
        "CLAUDE_PLUGIN_ROOT",
    }
    assert set(ACCEPTABLE) <= set(VERDICT_WORDS)


def test_nothing_is_substituted_by_accident() -> None:
    for agent in AGENTS:
        assert set(re.findall(r"\$\{\w+\}|\$\w+", parts(agent)[1])) <= {"${CLAUDE_PLUGIN_ROOT}"}


def test_documents_address_agents_with_their_namespace() -> None:
    name = json.loads((ROOT / "plugin.json").read_text())["name"]
    documents = [*ROOT.glob("skills/**/*.md"), *ROOT.glob("docs/*.md"), ROOT / "README.md"]
    named = [found for document in documents for found in re.findall(rf"{name}:([a-z-]+)", document.read_text())]
    known = set(TOOLS) | {path.parent.name for path in ROOT.glob("skills/*/SKILL.md")}
    assert len(named) >= 3
    assert set(named) <= known, "an agent or skill that is not there"
